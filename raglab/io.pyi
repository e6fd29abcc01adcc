from raglab.extensions.scale.shard_building import build_shards as build_shards
from raglab.extensions.scale.sharded_traces import save_shards as save_shards
from raglab.lab.langchain import hits_frame as hits_frame
from raglab.store.loaders import save_cases as save_cases
from raglab.store.loaders import save_corpus as save_corpus
from raglab.store.traces import TraceError as TraceError
