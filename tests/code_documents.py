"""Documentation of a small library, as such is written.

Sections, code, lists, tables, underlined headings.
"""

DOCUMENTS = {
    "install.md": """\
# Installation

Corvid needs Python 3.11 or newer.

Install it with pip:

```bash
pip install corvid
# or, for the extras
pip install "corvid[http]"
```

Upgrading
---------

To upgrade an existing installation, run:

```bash
pip install --upgrade corvid
```

## Uninstalling the package

Run `pip uninstall corvid` in the same environment.
""",
    "quickstart.md": """\
Quickstart
==========

Create a nest and put an egg into it:

```python
import corvid

nest = corvid.Nest("home")
nest.put("egg", colour="blue")   # eggs are blue by default
if nest:
    print(nest.count())
```

Opening a nest twice
====================

A nest may be opened twice in one process. Both handles share a lock.
""",
    "config.md": """\
# Configuration

<!-- todo: rewrite this page -->

Settings are read from `corvid.toml`:

```toml
# corvid.toml
[store]
path = "/var/lib/corvid"
timeout = 30
```

## Environment variables

- `CORVID_PATH`: folder of the store; overrides `store.path`.
- `CORVID_TIMEOUT`: seconds before a request is given up.

## Logging

```python
import logging
logging.getLogger("corvid").setLevel(logging.DEBUG)
```
""",
    "http.md": """\
# HTTP client

## Sending a request

Send a GET request:

~~~python
reply = corvid.get("https://example.org/eggs")
print(reply.status)
~~~

## Streaming a reply

To read a large reply piece by piece, use a context manager:

```python
with corvid.stream("GET", url) as reply:
    for block in reply.blocks():
        handle(block)
```

## Timeouts

The default timeout is 30 seconds. Pass `timeout=None` to wait for ever.

## Proxies

1. Set the variable `HTTPS_PROXY`.
2. Restart the client.
""",
    "errors.md": """\
# Errors

## LockedError

Raised where another process holds the lock of the nest.

## EmptyNestError

Raised by `take` where the nest holds no egg. Catch it like this:

```python
try:
    egg = nest.take()
except corvid.EmptyNestError:
    egg = None
```

## Retrying

| Error | Retried | Times |
|---|---|---|
| LockedError | yes | 5 |
| EmptyNestError | no | 0 |
""",
    "cli.md": """\
# Command line

## corvid init

Creates an empty nest in the current folder.

```console
$ corvid init --name home
created nest home
```

## corvid export

```console
$ corvid export --format csv > eggs.csv
```

Exports every egg to a file. The formats are `csv`, `json` and `parquet`.
""",
    "testing.md": """\
# Testing

## Fixtures

The fixture `nest` gives an empty nest in a temporary folder:

```python
def test_put(nest):
    nest.put("egg")
    assert nest.count() == 1
```

## Running the tests

```bash
# run everything in parallel
pytest -n auto
```
""",
    "deploy.md": """\
# Deployment

## Docker

Build the image and start it:

```dockerfile
FROM python:3.12-slim
RUN pip install corvid
CMD ["corvid", "serve", "--port", "8080"]
```

## Systemd

Write a unit file to `/etc/systemd/system/corvid.service`:

```ini
[Service]
ExecStart=/usr/bin/corvid serve
Restart=always
```
""",
    "plugins.md": """\
# Plugins

## Writing a plugin

A plugin is a class with a method `load`:

```python
class Plumage:
    def load(self, nest):
        \"\"\"Called once.\"\"\"
        self.nest = nest
```

## Registering it

Name the class in the entry points of your package:

```toml
[project.entry-points."corvid.plugins"]
plumage = "plumage:Plumage"
```
""",
    "security.md": """\
# Security

## Reporting a vulnerability

Write to security@corvid.example. We answer within 3 working days.

## Encrypting a nest

Encryption is off by default. Turn it on with a passphrase:

```python
nest = corvid.Nest("home", passphrase=os.environ["CORVID_KEY"])
```
""",
    "migrate.md": """\
# Migrating from version 1

## Renamed functions

`corvid.open` is now `corvid.Nest`. Replace the calls:

```diff
-nest = corvid.open("home")
+nest = corvid.Nest("home")
```

## Removed settings

The setting `store.cache` was removed in version 2.
""",
    "faq.md": """\
# Questions

### Is corvid thread-safe?

Yes. A nest may be used by many threads.

### How do I delete all eggs?

Call `clear`:

```python
nest.clear()
```

### Where are the eggs stored?

In the folder `store.path`.
""",
}
# A question and the document that answers it, '' where none does.
QUESTIONS = (
    ("How do I install corvid with pip?", "install.md"),
    ("How can I upgrade an existing installation?", "install.md"),
    ("How do I uninstall the package?", "install.md"),
    ("Which Python version does corvid need?", "install.md"),
    ("How do I create a nest and put an egg into it?", "quickstart.md"),
    ("What colour are eggs by default?", "quickstart.md"),
    ("May a nest be opened twice in one process?", "quickstart.md"),
    ("Which file are the settings read from?", "config.md"),
    ("What is the timeout in corvid.toml?", "config.md"),
    ("What does CORVID_TIMEOUT do?", "config.md"),
    ("How do I set the logging level to debug?", "config.md"),
    ("How do I send a GET request?", "http.md"),
    ("How do I read a large reply piece by piece?", "http.md"),
    ("What is the default timeout of the HTTP client?", "http.md"),
    ("How do I configure a proxy?", "http.md"),
    ("How do I catch EmptyNestError?", "errors.md"),
    ("When is LockedError raised?", "errors.md"),
    ("Is LockedError retried?", "errors.md"),
    ("What does corvid init do?", "cli.md"),
    ("How do I export eggs to csv?", "cli.md"),
    ("Which export formats are there?", "cli.md"),
    ("What does the fixture nest give?", "testing.md"),
    ("How do I run the tests in parallel?", "testing.md"),
    ("How do I build a Docker image?", "deploy.md"),
    ("How do I restart the service always with systemd?", "deploy.md"),
    ("How do I write a plugin class?", "plugins.md"),
    ("How do I register a plugin in the entry points?", "plugins.md"),
    ("How do I report a vulnerability?", "security.md"),
    ("How do I turn on encryption with a passphrase?", "security.md"),
    ("How do I replace corvid.open?", "migrate.md"),
    ("Was the setting store.cache removed?", "migrate.md"),
    ("How do I delete all eggs?", "faq.md"),
    ("Is corvid thread-safe?", "faq.md"),
    ("Who won the football match in Lisbon?", ""),
    ("What is the price of a hotel in Rome?", ""),
)
