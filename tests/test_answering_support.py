"""What evidence carries scores above what it does not.

Numbers, negations, claims of answers, models of entailment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.answering.support import (
    NliScorer,
    answer_support,
    split_claims,
    support_scores,
)
from raglab.models.loaders import load_nli
from raglab.store.policies import Policy

# Evidence (`=`, a line that is `=` alone begins its next text), and pairs of claims (`+`): what it
# says | what it does not say. The two differ in a number or a negation; whatever words the second
# has are in the evidence.
PAIRS = """
= # Home > Excesses
= The storm excess is £400. The escape of water excess is £350. Flood is not covered in the \
cellar, but it is
  covered on the ground floor. Claims must be notified within 30 days; theft must be reported to \
the police within
  24 hours.
=
= # Home > Excesses from 1 April 2025
= | Cause | Excess |
= |---|---|
= | Subsidence | £1,000 |
= | Theft | £250 |
= | Fire | £100 |
+ The storm excess is £400. | The storm excess is £350.
+ The escape of water excess is £350. | The escape of water excess is £400.
+ For a storm, the excess to take off is £400. | For a storm, the excess to take off is £350.
+ Claims must be notified within 30 days. | Claims must be notified within 24 days.
+ Report theft to the police within 24 hours. | Report theft to the police within 30 hours.
+ Notify claims within thirty days. | Notify claims within 24 days.
+ The subsidence excess is £1,000. | The subsidence excess is £250.
+ The theft excess is £250. | The theft excess is £100.
+ The fire excess is £100 from 1 April 2025. | The fire excess is £250 from 1 April 2025.
+ Flood is not covered in the cellar. | Flood is covered in the cellar.
+ Flood is covered on the ground floor. | Flood is not covered on the ground floor.
+ In the cellar, flood is not covered. | In the cellar, flood is covered.
+ Theft must be reported to the police. | Theft must not be reported to the police.
+ The storm excess is £400. | The storm excess is not £400.

= The fleet schedule lists 42 vans and 17 cars. Drivers under 25 pay an additional excess of £500; \
drivers over 70
  pay £300. Vehicles left unattended with the keys in are never covered. Any driver may use a van, \
but no driver
  under 21 may use a car over 3.5 tonnes.
=
= The policy runs from 1 July 2025 to 30 June 2026. It does not renew automatically. The broker \
does invite
  renewal. Hire vehicles are insured for 14 days and replacement vehicles for 28 days.
+ There are 42 vans on the schedule. | There are 17 vans on the schedule.
+ There are 17 cars on the schedule. | There are 42 cars on the schedule.
+ The fleet has 42 vans and 17 cars. | The fleet has 17 vans and 42 cars.
+ Drivers under 25 pay £500 more. | Drivers under 25 pay £300 more.
+ Drivers over 70 pay £300. | Drivers over 25 pay £300.
+ Drivers over 70 pay £300. | Drivers over 70 pay £500.
+ The policy runs to 30 June 2026. | The policy runs to 30 June 2025.
+ The policy runs from 1 July 2025. | The policy runs from 30 July 2025.
+ A hire vehicle is insured for 14 days. | A hire vehicle is insured for 28 days.
+ Replacement vehicles are insured for 28 days. | Replacement vehicles are insured for 14 days.
+ The policy does not renew automatically. | The policy does renew automatically.
+ The broker does invite renewal. | The broker does not invite renewal.
+ Vehicles left with the keys in are never covered. | Vehicles left with the keys in are covered.
+ Any driver may use a van. | No driver may use a van.
+ No driver under 21 may use a car over 3.5 tonnes. | Any driver under 21 may use a car over 3.5 \
tonnes.
+ Hire vehicles are insured for 14 days. | Hire vehicles are not insured for 14 days.

= CargoShield covers goods in transit by sea, air and road. The limit is USD 2,000,000 for any one \
vessel and USD
  750,000 for any one truck. War risks are excluded; strikes are included. Goods that are not \
packed by a
  professional are carried without cover for breakage. Delay is never insured, whatever its cause.
=
= Surveyors do not need to attend below 5,000 dollars. They do need to attend above 25,000 \
dollars. Premium rises
  by 12% when the loss ratio passes 60%, and it falls by 5% when the ratio stays below 30%.
+ The limit for any one truck is USD 750,000. | The limit for any one truck is USD 2,000,000.
+ The limit is USD 2,000,000 for any one vessel. | The limit is USD 750,000 for any one vessel.
+ Surveyors need to attend above 25,000 dollars. | Surveyors need to attend above 5,000 dollars.
+ Premium rises by 12% when the ratio passes 60%. | Premium rises by 5% when the ratio passes 60%.
+ It falls by 5% when the ratio stays below 30%. | It falls by 5% when the ratio stays below 60%.
+ It falls by 5% when the ratio stays below 30%. | It falls by 12% when the ratio stays below 30%.
+ Delay is never insured. | Delay is insured.
+ Strikes are included. | Strikes are excluded.
+ War risks are excluded. | War risks are included.
+ War risks are not included. | War risks are not excluded.
+ Surveyors do not need to attend below 5,000 dollars. | Surveyors do need to attend below 5,000 \
dollars.
+ They do need to attend above 25,000 dollars. | They do not need to attend above 25,000 dollars.
+ Goods in transit by sea are covered. | Goods in transit by sea are never covered.
+ The premium rises when the loss ratio passes 60%. | The premium falls when the loss ratio passes \
60%.

= The old town hall was built in 1874 and the new one in 1931. The bridge has two towers and seven \
arches. It was
  not damaged in the war, although the station was damaged. The museum opened before the library \
did. Lena Hart
  founded the library, and Otto Brandt founded the museum.
=
= The population grew from 12,000 in 1900 to 48,000 in 1950. Nobody lived on the island until \
1920. The council
  can levy a tax, but it cannot borrow. The mayor isn't elected by the council; the treasurer is.
+ The old town hall was built in 1874. | The old town hall was built in 1931.
+ The new town hall was built in 1931. | The new town hall was built in 1874.
+ The bridge has seven arches. | The bridge has two arches.
+ The bridge has two towers and seven arches. | The bridge has seven towers and two arches.
+ In 1950 the population was 48,000. | In 1950 the population was 12,000.
+ In 1900 there was a population of 12,000. | In 1900 there was a population of 48,000.
+ The bridge was not damaged in the war. | The bridge was damaged in the war.
+ The station was damaged. | The station was not damaged.
+ The council cannot borrow. | The council can borrow.
+ The council can levy a tax. | The council cannot levy a tax.
+ Nobody lived on the island until 1920. | People lived on the island until 1920.
+ The mayor isn't elected by the council. | The mayor is elected by the council.
+ The station was damaged in the war. | The station was not damaged in the war.

= La franchise tempête est de 300 €. La franchise dégât des eaux est de 150 €. L'inondation n'est \
pas couverte au
  sous-sol, mais elle est couverte au rez-de-chaussée. Le vol doit être déclaré dans un délai de \
deux jours
  ouvrés, et tout autre sinistre dans un délai de cinq jours ouvrés.
=
= La serrure doit être posée avant le 30 juin 2025. L'avenant prend effet le 1er mars 2025. La \
piscine n'est
  jamais assurée. Le garage est assuré sans supplément. Aucun bijou n'est garanti hors du \
domicile; les meubles
  sont garantis.
+ La franchise tempête est de 300 €. | La franchise tempête est de 150 €.
+ La franchise dégât des eaux est de 150 €. | La franchise dégât des eaux est de 300 €.
+ Un vol se déclare dans un délai de deux jours. | Un vol se déclare dans un délai de cinq jours.
+ La serrure est posée avant le 30 juin 2025. | La serrure est posée avant le 1er juin 2025.
+ L'avenant prend effet en mars 2025. | L'avenant prend effet en juin 2025.
+ L'inondation n'est pas couverte au sous-sol. | L'inondation est couverte au sous-sol.
+ L'inondation est couverte au rez-de-chaussée. | L'inondation n'est pas couverte au \
rez-de-chaussée.
+ La piscine n'est jamais assurée. | La piscine est assurée.
+ Le garage est assuré. | Le garage n'est pas assuré.
+ Le garage est assuré sans supplément. | Le garage est assuré avec supplément.
+ Aucun bijou n'est garanti hors du domicile. | Un bijou est garanti hors du domicile.
+ Les meubles sont garantis. | Les meubles ne sont pas garantis.

= La flotte compte 38 camions et 12 voitures. Le conducteur novice paie une franchise de 1 500 €, \
le conducteur
  confirmé une franchise de 750 €. Le prêt de volant n'est pas autorisé aux moins de 21 ans; il \
est autorisé aux
  autres. L'assistance est acquise à 0 km, le remorquage jusqu'à 80 km.
=
= Le contrat ne se renouvelle pas par tacite reconduction. La prime augmente de 8 % si le ratio \
dépasse 60 %, et
  baisse de 5 % sous 30 %. Les marchandises dangereuses sont exclues, les marchandises générales \
sont incluses.
+ La flotte compte 38 camions. | La flotte compte 12 camions.
+ Le conducteur novice paie 1 500 €. | Le conducteur novice paie 750 €.
+ Le conducteur confirmé a une franchise de 750 €. | Le conducteur confirmé a une franchise de 1 \
500 €.
+ Le remorquage est acquis jusqu'à 80 km. | Le remorquage est acquis jusqu'à 0 km.
+ La prime baisse de 5 % sous 30 %. | La prime baisse de 8 % sous 30 %.
+ La prime augmente de 8 % si le ratio dépasse 60 %. | La prime augmente de 8 % si le ratio \
dépasse 30 %.
+ Le prêt de volant n'est pas autorisé aux moins de 21 ans. | Le prêt de volant est autorisé aux \
moins de 21 ans.
+ Le contrat ne se renouvelle pas par tacite reconduction. | Le contrat se renouvelle par tacite \
reconduction.
+ L'assistance est acquise à 0 km. | L'assistance n'est pas acquise à 0 km.
+ Les marchandises dangereuses sont exclues. | Les marchandises dangereuses sont incluses.
+ La prime augmente si le ratio dépasse 60 %. | La prime baisse si le ratio dépasse 60 %.
+ Les marchandises générales sont incluses. | Les marchandises générales ne sont pas incluses.

= The warranty lasts 24 months for the engine and 12 months for the battery. It is void if the \
seal is broken, but
  it isn't void if the label is lost. Repairs take 5 days in the workshop, 9 days by post.
+ The battery has a 12 month warranty. | The battery has a 24 month warranty.
+ The engine is under warranty for 24 months. | The engine is under warranty for 12 months.
+ By post, repairs take 9 days. | By post, repairs take 5 days.
+ In the workshop a repair takes 5 days. | In the workshop a repair takes 9 days.
+ The warranty is void if the seal is broken. | The warranty isn't void if the seal is broken.
+ If the label is lost, it isn't void. | If the label is lost, it is void.

= Section 4 applies to tenants. Tenants pay 3% of the rent as a deposit, owners pay 7%. Pets are \
not allowed
  without written consent. Smoking isn't permitted in the lifts; it is permitted on balconies. \
Keys must be
  returned by 31 May 2024, bikes removed by 15 June 2024.
+ Tenants pay a deposit of 3%. | Tenants pay a deposit of 7%.
+ Owners pay 7%. | Owners pay 3%.
+ Keys must be returned by 31 May. | Keys must be returned by 15 May.
+ Bikes must be removed by 15 June. | Bikes must be removed by 31 June.
+ Smoking is permitted on balconies. | Smoking isn't permitted on balconies.
+ Smoking isn't permitted in the lifts. | Smoking is permitted in the lifts.
+ Without written consent pets are not allowed. | Without written consent pets are allowed.

= In 2019 the company employed 310 people; in 2023 it employed 295. Sales did not fall in 2020, \
they fell in 2021.
  The plant in Leeds makes paint and the plant in Hull does not. The board approved the dividend \
but did not
  approve the merger.
+ The company had 295 people in 2023. | The company had 310 people in 2023.
+ 310 people were employed in 2019. | 295 people were employed in 2019.
+ Sales fell in 2021. | Sales fell in 2020.
+ Sales did not fall in 2020. | Sales did fall in 2020.
+ The plant in Leeds makes paint. | The plant in Leeds does not make paint.
+ The board did not approve the merger. | The board did approve the merger.
+ The board approved the dividend. | The board did not approve the dividend.

= Le bail dure six ans pour les bureaux et neuf ans pour les entrepôts. Le locataire ne paie pas \
la taxe foncière,
  il paie la taxe d'habitation. Le préavis est de 3 mois, réduit à 1 mois en zone tendue. Les \
animaux sont admis,
  sauf les reptiles. Rien n'est dû en cas de départ anticipé après la deuxième année.
+ Le bail des entrepôts dure neuf ans. | Le bail des entrepôts dure six ans.
+ Pour les bureaux, le bail dure six ans. | Pour les bureaux, le bail dure neuf ans.
+ Le locataire ne paie pas la taxe foncière. | Le locataire paie la taxe foncière.
+ Le locataire paie la taxe d'habitation. | Le locataire ne paie pas la taxe d'habitation.
+ En zone tendue, le préavis est de 1 mois. | En zone tendue, le préavis est de 3 mois.
+ Les reptiles ne sont pas admis. | Les reptiles sont admis.
+ Les animaux sont admis. | Les animaux ne sont pas admis.

= The trial enrolled 120 adults and 45 children. Aspirin reduced fever in adults, not in children. \
No deaths
  occurred in the treatment arm; three deaths occurred in the placebo arm. The dose was 50 mg in \
week one and 75
  mg in week two. Patients without diabetes were excluded.
+ There were 45 children in the trial. | There were 120 children in the trial.
+ The dose in week two was 75 mg. | The dose in week two was 50 mg.
+ Aspirin did not reduce fever in children. | Aspirin did reduce fever in children.
+ Aspirin reduced fever in adults. | Aspirin did not reduce fever in adults.
+ Three deaths occurred in the placebo arm. | No deaths occurred in the placebo arm.
+ No deaths occurred in the treatment arm. | Three deaths occurred in the treatment arm.
+ Patients without diabetes were excluded. | Patients with diabetes were excluded.

= Members may borrow four books and two films at once. Books are due after 21 days; films are due \
after 7 days.
  Late books cost 20 cents a day, late films cost 1 dollar a day. Renewal is possible online, but \
not by phone.
  Students never pay a joining fee. Guests do pay one.
+ Members may borrow two films. | Members may borrow four films.
+ Four books may be borrowed at once. | Two books may be borrowed at once.
+ Films are due after 7 days. | Films are due after 21 days.
+ A book is due after 21 days. | A book is due after 7 days.
+ Late books cost 20 cents a day. | Late books cost 1 dollar a day.
+ Renewal by phone is not possible. | Renewal by phone is possible.
+ Renewal is possible online. | Renewal is not possible online.
+ Guests pay a joining fee. | Guests never pay a joining fee.
+ Students never pay a joining fee. | Students pay a joining fee.

= The motor policy pays up to £5,000 for legal costs and up to £1,500 for a courtesy car. \
Windscreen repair
  carries no excess; replacement carries an excess of £75. Track use is excluded. Towing a caravan \
is included.
  Your no claims bonus isn't affected by a windscreen claim, though it is affected by a theft claim.
+ Legal costs are paid up to £5,000. | Legal costs are paid up to £1,500.
+ For a courtesy car it pays up to £1,500. | For a courtesy car it pays up to £5,000.
+ Track use is not included. | Track use is included.
+ A theft claim affects the no claims bonus. | A theft claim does not affect the no claims bonus.
+ A windscreen claim doesn't affect your bonus. | A windscreen claim does affect your bonus.
+ Towing a caravan is not excluded. | Towing a caravan is excluded.

= Mount Alder rises 2,140 metres, Mount Birch 1,860 metres. The north path opens in May and closes \
in October.
  Dogs must be kept on a lead. The hut has no electricity. Camping is forbidden near the lake but \
allowed in the
  meadow. The cable car does not run in winter.
+ Mount Birch rises 1,860 metres. | Mount Birch rises 2,140 metres.
+ The height of Mount Alder is 2,140 metres. | The height of Mount Alder is 1,860 metres.
+ The north path closes in October. | The north path closes in May.
+ In May the north path opens. | In October the north path opens.
+ Camping is not allowed near the lake. | Camping is allowed near the lake.
+ Camping is allowed in the meadow. | Camping is forbidden in the meadow.
+ There is no electricity in the hut. | There is electricity in the hut.
+ In winter the cable car does not run. | In winter the cable car does run.

= La carte coûte 45 euros pour un adulte et 20 euros pour un enfant. Le musée ferme le lundi, il \
ne ferme pas le
  dimanche. Les photos sont permises sans flash. Aucune visite guidée n'a lieu en août. Le billet \
est valable 48
  heures, le parking 6 heures. L'ascenseur dessert le premier étage mais ne dessert pas la tour.
+ Un enfant paie 20 euros. | Un enfant paie 45 euros.
+ La carte adulte coûte 45 euros. | La carte adulte coûte 20 euros.
+ Le musée ne ferme pas le dimanche. | Le musée ferme le dimanche.
+ Le musée ferme le lundi. | Le musée ne ferme pas le lundi.
+ Le parking est valable 6 heures. | Le parking est valable 48 heures.
+ L'ascenseur ne dessert pas la tour. | L'ascenseur dessert la tour.
+ L'ascenseur dessert le premier étage. | L'ascenseur ne dessert pas le premier étage.

= Ms Ito joined the board in 2011 and left it in 2018. Mr Ruiz joined in 2015. The fund returned \
6.5% in 2020,
  against 4.2% in 2019. Fees aren't charged on deposits; fees are charged on withdrawals. The \
auditor found no
  error in the accounts.
+ Ms Ito left the board in 2018. | Ms Ito left the board in 2011.
+ Mr Ruiz joined the board in 2015. | Mr Ruiz joined the board in 2011.
+ The return was 4.2% in 2019. | The return was 6.5% in 2019.
+ In 2020 the fund returned 6.5%. | In 2020 the fund returned 4.2%.
+ Withdrawals are charged fees. | Withdrawals aren't charged fees.
+ Deposits aren't charged fees. | Deposits are charged fees.
+ The auditor found no error. | The auditor found an error.

= The scheme gives grants of £900 to schools and £2,400 to hospitals. Applications close on 12 \
March; decisions
  follow by 9 May. Grants can't be used for salaries, but they can be used for equipment. \
Charities aren't
  eligible in Wales. Over 80 bids arrived in spring and fewer than 30 in autumn.
+ Hospitals receive grants of £2,400. | Hospitals receive grants of £900.
+ A school gets £900. | A school gets £2,400.
+ Applications close on 12 March. | Applications close on 9 March.
+ Decisions follow by 9 May. | Decisions follow by 12 May.
+ The grants can be used for equipment. | The grants can't be used for equipment.
+ The grants can't be used for salaries. | The grants can be used for salaries.
+ In Wales, charities aren't eligible. | In Wales, charities are eligible.
+ Fewer than 30 bids arrived in autumn. | Fewer than 80 bids arrived in autumn.
+ More than 80 bids arrived in spring. | More than 30 bids arrived in spring.

= Train 7 leaves at 8:15 from platform 4 and train 9 leaves at 8:40 from platform 2. Bicycles \
travel free on train
  9. First class isn't available on train 7. A ticket bought on board costs 15 euros, one bought \
online costs 11
  euros. Seats don't have to be reserved on weekdays.
+ Train 7 leaves from platform 4. | Train 7 leaves from platform 2.
+ Train 9 leaves at 8:40. | Train 9 leaves at 8:15.
+ Bicycles travel free on train 9. | Bicycles travel free on train 7.
+ First class isn't available on train 7. | First class is available on train 7.
+ Online, a ticket costs 11 euros. | Online, a ticket costs 15 euros.
+ On board a ticket costs 15 euros. | On board a ticket costs 11 euros.
+ On weekdays seats don't have to be reserved. | On weekdays seats have to be reserved.

= The roof is guaranteed for ten years and the windows for five years. The guarantee doesn't pay \
for hail damage.
  It does pay for leaks. No inspection is needed in the first year. After the second year an \
inspection is
  required. Gutters were replaced in 2016, tiles in 2021.
+ The windows are guaranteed for five years. | The windows are guaranteed for ten years.
+ The roof guarantee lasts ten years. | The roof guarantee lasts five years.
+ The guarantee doesn't pay for hail. | The guarantee does pay for hail.
+ The guarantee pays for leaks. | The guarantee doesn't pay for leaks.
+ In the first year no inspection is needed. | In the first year an inspection is needed.
+ The tiles were replaced in 2021. | The tiles were replaced in 2016.
+ An inspection is required after the second year. | An inspection isn't required after the second \
year.

= L'abonnement coûte 12 euros par mois, la première année 8 euros par mois. La résiliation est \
possible après 6
  mois; elle n'est pas possible avant. Le technicien intervient sous 48 heures en ville et sous 72 \
heures à la
  campagne. Les appels vers l'étranger ne sont pas inclus. La télévision est incluse. Sans \
facture, aucun
  remboursement n'est accordé.
+ La première année, l'abonnement coûte 8 euros par mois.
- La première année, l'abonnement coûte 12 euros par mois.
+ La résiliation est possible après 6 mois. | La résiliation n'est pas possible après 6 mois.
+ En ville, le technicien intervient sous 48 heures. | En ville, le technicien intervient sous 72 \
heures.
+ À la campagne, il intervient sous 72 heures. | À la campagne, il intervient sous 48 heures.
+ Les appels vers l'étranger ne sont pas inclus. | Les appels vers l'étranger sont inclus.
+ La télévision est incluse. | La télévision n'est pas incluse.
+ Aucun remboursement n'est accordé sans facture. | Un remboursement est accordé sans facture.

= The hotel has 30 rooms on the first floor and 18 suites on the second. Breakfast ends at 10:30 \
on weekdays and
  at 11:15 on Sundays. Parking isn't free for visitors; it is free for guests. The pool doesn't \
open in November.
  Children under 6 stay free, and children under 12 pay half.
+ There are 18 suites on the second floor. | There are 30 suites on the second floor.
+ The hotel has 30 rooms. | The hotel has 18 rooms.
+ Breakfast ends at 11:15 on Sundays. | Breakfast ends at 10:30 on Sundays.
+ On weekdays breakfast ends at 10:30. | On weekdays breakfast ends at 11:15.
+ Parking is free for guests. | Parking isn't free for guests.
+ Parking isn't free for visitors. | Parking is free for visitors.
+ The pool doesn't open in November. | The pool does open in November.
+ Children under 12 pay half. | Children under 6 pay half.
+ Children under 6 stay free. | Children under 12 stay free.

= Marta Weiss scored two goals and Ines Costa scored five. The final was played in Lyon in 2012, \
the semi-final in
  Porto. The club has won the league nine times and the cup four times. It didn't enter the cup in \
1998. The
  stadium holds 41,000, of whom 6,500 stand.
+ Ines Costa scored five goals. | Ines Costa scored two goals.
+ Marta Weiss scored two goals. | Marta Weiss scored five goals.
+ The club has won the cup four times. | The club has won the cup nine times.
+ The league was won nine times. | The league was won four times.
+ In 1998 it didn't enter the cup. | In 1998 it did enter the cup.
+ The stadium holds 41,000. | The stadium holds 6,500.

= Une avance de 40 % est versée à la commande, le solde de 60 % à la livraison. Les frais de port \
ne sont pas
  remboursés, les frais de douane le sont. La garantie couvre la pompe pendant deux ans et le \
moteur pendant cinq
  ans. Le filtre n'est pas couvert. Aucune réclamation n'est admise après 15 jours.
+ Le solde est de 60 % à la livraison. | Le solde est de 40 % à la livraison.
+ À la commande, une avance de 40 % est versée. | À la commande, une avance de 60 % est versée.
+ Les frais de port ne sont pas remboursés. | Les frais de port sont remboursés.
+ La garantie couvre le moteur pendant cinq ans. | La garantie couvre le moteur pendant deux ans.
+ La pompe est couverte pendant deux ans. | La pompe est couverte pendant cinq ans.
+ Le filtre n'est pas couvert. | Le filtre est couvert.
+ Aucune réclamation n'est admise après 15 jours. | Une réclamation est admise après 15 jours.

= Payment is due within 45 days of invoice. Interest of 1.5% a month is added after 60 days. \
Neither party may
  assign the contract. The supplier warrants the goods for 18 months and spare parts for 6 months. \
Samples aren't
  returned. The buyer may cancel before dispatch but can't cancel after it.
+ Payment is due within 45 days. | Payment is due within 60 days.
+ After 60 days interest is added. | After 45 days interest is added.
+ The supplier warrants spare parts for 6 months. | The supplier warrants spare parts for 18 months.
+ The goods are warranted for 18 months. | The goods are warranted for 6 months.
+ Samples aren't returned. | Samples are returned.
+ The buyer may cancel before dispatch. | The buyer can't cancel before dispatch.
+ Neither party may assign the contract. | Either party may assign the contract.
+ The buyer can't cancel after dispatch. | The buyer may cancel after dispatch.

= The service plan covers parts and labour. It does not cover batteries. Members may use the pool \
and the gym. They
  may not use the sauna. The pass includes the boat trip. Lunch is not included.
+ The service plan does not cover batteries. | The service plan covers batteries.
+ The service plan covers parts. | The service plan does not cover parts.
+ Members may not use the sauna. | Members may use the sauna.
+ Members may use the gym. | Members may not use the gym.
+ The pass does not include lunch. | The pass includes lunch.
+ The pass includes the boat trip. | The pass does not include the boat trip.

= La formule comprend le petit déjeuner. Elle ne comprend pas le parking. Le contrat garantit les \
dégâts causés par
  la grêle. Il ne garantit pas les objets confiés.
+ La formule ne comprend pas le parking. | La formule comprend le parking.
+ La formule comprend le petit déjeuner. | La formule ne comprend pas le petit déjeuner.
+ Le contrat ne garantit pas les objets confiés. | Le contrat garantit les objets confiés.
+ Le contrat garantit les dégâts. | Le contrat ne garantit pas les dégâts.
"""

# Whose pay `one` means is a matter of two sentences; told apart by words alone, the second is
# nearer to the evidence.
UNSEEN = {"Guests pay a joining fee."}


class Pair(NamedTuple):
    """Evidence, a claim that it carries, and one that it does not."""

    evidence: tuple[str, ...]
    true: str
    false: str


def pairs_in(text):
    """Pairs of the format of `PAIRS`."""
    result = []
    for block in text.strip().replace("\n- ", " | ").split("\n\n"):
        lines = block.splitlines()
        stated = list(takewhile(lambda line: not line.startswith("+"), lines))
        texts = "\n".join(
            line[2:] if line.startswith("= ") else line.removeprefix("=") for line in stated
        )
        evidence = tuple(part.strip() for part in texts.replace("\n  ", " ").split("\n\n"))
        for line in lines[len(stated) :]:
            true, false = line.removeprefix("+ ").split(" | ")
            result.append(Pair(evidence, true, false))
    return result


ALL = pairs_in(PAIRS)
EVIDENCE = ["The storm excess is £400. The theft excess is £250. Flood is not covered."]


def score(claim, *evidence):
    """Support of one claim."""
    return float(support_scores([claim], [list(evidence)])[0])


class TestPairs:
    """A changed number, or a negation added or dropped, scores below what the evidence says."""

    @pytest.mark.parametrize(
        "pair", [pair for pair in ALL if pair.true not in UNSEEN], ids=lambda pair: pair.false
    )
    def test_the_false_one_scores_lower(self, pair):
        """It does so strictly, by more than rounding."""
        true, false = support_scores([pair.true, pair.false], [list(pair.evidence)] * 2)
        assert true > false + 1e-6

    @pytest.mark.parametrize(
        ("evidence", "claim", "says"),
        [
            ("A waiver covers damage up to £500. It does not cover theft.", "covers theft", False),
            ("A waiver covers damage up to £500. It does not cover theft.", "covers damage", True),
            ("A waiver covers damage. Theft is not covered.", "covers theft", False),
            ("A waiver covers damage. Theft is excluded.", "covers theft", False),
            ("A waiver covers damage. It does not cover damage at sea.", "covers damage", True),
            ("It does not cover theft. A waiver covers damage.", "covers theft", False),
            ("A waiver covers theft. It does not cover misuse.", "does not cover theft", False),
            (
                "A waiver covers theft and loss. Travel insurance does not cover theft.",
                "covers theft",
                True,
            ),
        ],
    )
    def test_the_published_gate_stops_a_contradiction_in_the_next_sentence(
        self, evidence, claim, says
    ):
        """What the sentence beside it denies of the same object, with `it` or without."""
        least = Policy.load().value("support.min_support")
        assert (score(f"A waiver {claim}.", evidence) >= least) == says

    def test_a_changed_name_scores_lower(self):
        """Both names are in the evidence; it is their company that differs."""
        text = "Lena Hart founded the library, and Otto Brandt founded the museum."
        right, wrong = (f"{name} founded the museum." for name in ("Otto Brandt", "Lena Hart"))
        assert score(right, text) > score(wrong, text)


class TestScores:
    """Support of claims."""

    def test_what_the_evidence_says_word_for_word_scores_one(self):
        """One sentence of three, each for itself."""
        claims = ["The storm excess is £400.", "The theft excess is £250.", "Flood is not covered."]
        assert support_scores(claims, [EVIDENCE] * 3) == pytest.approx([1.0, 1.0, 1.0])

    def test_nothing_supports_nothing(self):
        """No evidence, empty evidence, an empty claim, a claim of marks.

        0, and no claims give no scores.
        """
        claims = ["It is covered.", "It is covered.", "", "--- …"]
        assert support_scores(claims, [[], ["", " "], EVIDENCE, EVIDENCE]).tolist() == [0.0] * 4
        assert support_scores([], []).shape == (0,)

    @pytest.mark.parametrize("scores", [support_scores, NliScorer(None).scores])
    def test_claims_and_evidence_go_together(self, scores):
        """Another number of evidence lists, or a text for a list, is refused with the remedy."""
        with pytest.raises(ValueError, match="for each of 2 claims, got 1"):
            scores(["a", "b"], [["c"]])
        with pytest.raises(ValueError, match="must be a list of texts for each of 1 claims, got 0"):
            scores(["a"], ["c"])

    def test_a_claim_does_not_depend_on_its_neighbours(self):
        """Scored alone, in any company and in any order, every claim has the same bits."""
        claims = [claim for pair in ALL[:40] for claim in (pair.true, pair.false)]
        texts = [list(pair.evidence) for pair in ALL[:40] for _ in range(2)]
        together = support_scores(claims, texts)
        assert np.array_equal(support_scores(claims[::-1], texts[::-1])[::-1], together)
        assert [
            score(claim, *result) for claim, result in zip(claims, texts, strict=True)
        ] == together.tolist()

    def test_two_processes_agree(self):
        """Hashes of strings, which differ between processes, change no bit."""
        code = (
            "import json, sys; from raglab.answering.support import support_scores\n"
            "print(json.dumps(support_scores(*json.load(sys.stdin)).tolist()))"
        )
        claims = json.dumps([[pair.false for pair in ALL], [list(pair.evidence) for pair in ALL]])
        text = {
            subprocess.run(
                [sys.executable, "-c", code],
                input=claims,
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        assert len(text) == 1

    @settings(deadline=None, derandomize=True, max_examples=100)
    @given(
        st.text(alphabet="a1é.,;:!?'’n£%/-() \n|#ofntwenycA", max_size=60),
        st.lists(st.text(max_size=80), max_size=3),
    )
    def test_any_text_has_a_score(self, claim, evidence):
        """A score lies in [0, 1], whatever stands there.

        As its own evidence a claim scores at least as high.
        """
        result = score(claim, *evidence)
        assert 0.0 <= result <= 1.0
        assert score(claim, claim) >= result - 1e-9 or not split_claims(claim)

    def test_numbers_of_any_length_are_read(self):
        """A number that no float holds, a date that is none, a run of scales."""
        for claim in ("9" * 400, "99/99/2025", "million " * 50, "1,234,567,890,123,456", "1:2:3/4"):
            assert score(claim, claim) == pytest.approx(1.0)

    def test_a_missing_name_counts_more_than_a_missing_word(self):
        """Names of the same length in the place of words."""
        text = "The bridge was built by the county."
        assert score("The bridge was built by Alder.", text) < score(
            "The bridge was built by hand.", text
        )

    def test_a_heading_is_company_of_its_table(self):
        """The word for what a row's number is stands in the heading."""
        table = "# Excesses\n\n| Storm | £400 |\n| Theft | £250 |"
        assert score("The storm excess is £400.", table) > score("The storm excess is £250.", table)
        assert score("The storm excess is £400.", table) > score(
            "The storm excess is £400.", table.split("\n\n")[1]
        )


class TestClaims:
    """Answers cut into claims."""

    @pytest.mark.parametrize(
        ("answer", "claims"),
        [
            ("", []),
            ("Yes.", []),
            ("It is £400. Is that all?", ["It is £400."]),
            ("It is £400 [1]. Theft is £250 [2, 3].", ["It is £400.", "Theft is £250."]),
            ("It is £400 [acme.md#2].", ["It is £400."]),
            ("- Storm: £400\n- Theft: £250", ["Storm: £400", "Theft: £250"]),
            ("# Excesses\n\nIt is £400.", ["It is £400."]),
            ("| Peril | Excess |\n|---|---|\n| Storm | £400 |", ["Storm; £400"]),
            (
                "Storm carries £400; theft carries £250.",
                ["Storm carries £400", "theft carries £250."],
            ),
            ("It covers fire; storm; theft.", ["It covers fire; storm; theft."]),
            ("It is £400 and not £250.", ["It is £400 and not £250."]),
        ],
    )
    def test_claims(self, answer, claims):
        """Questions, headings, heads of tables, marks of citations and a bare yes are left out."""
        assert split_claims(answer) == claims

    def test_the_least_supported_claim_decides(self):
        """Its score is the answer's; all claims are told in their order."""
        result = answer_support(
            "The storm excess is £400. Bees are covered. The theft excess is £250.", EVIDENCE
        )
        assert result.claim == "Bees are covered."
        assert result.score == score("Bees are covered.", *EVIDENCE)
        assert result.by_claim[2][0] == "The theft excess is £250."

    def test_an_answer_without_claims_has_no_support(self):
        """NaN, which passes no gate; without passages every claim has 0."""
        none = answer_support("Yes.", EVIDENCE)
        assert np.isnan(none.score)
        assert (none.claim, none.by_claim) == ("", ())
        assert answer_support("It is £400.", []).score == 0.0


VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "storm",
    "is",
    "covered",
    "theft",
    "not",
    ".",
]


def save_nli(folder, labels):
    """Write a classifier of pairs with random weights."""
    import torch
    import transformers as untyped

    transformers = untyped
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        id2label=labels,
        label2id={label: number for number, label in labels.items()},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.BertForSequenceClassification(config)
        torch.nn.init.normal_(model.classifier.weight)
        model.save_pretrained(folder)
    tokenizer.model_max_length = 32
    tokenizer.save_pretrained(folder)
    return folder


class TestNli:
    """Any NLI cross-encoder, with tiny models made here."""

    @pytest.fixture(scope="class")
    @staticmethod
    def nli(tmp_path_factory):
        """Return a model whose second label is entailment."""
        labels = {0: "contradiction", 1: "ENTAILMENT", 2: "neutral"}
        return load_nli(str(save_nli(tmp_path_factory.mktemp("nli") / "tiny-nli", labels)))

    def test_the_label_is_read_from_the_configuration(self, nli):
        """The probability is the softmax of the network's logits at that label."""
        import torch

        network, tokenizer = nli.model.model, nli.model.tokenizer
        with torch.inference_mode():
            logits = network(
                **tokenizer(["storm is covered"], ["theft"], return_tensors="pt")
            ).logits
        expected = torch.softmax(logits[0].double(), dim=0)[1]
        assert nli.label == 1
        assert nli.entailment([("storm is covered", "theft")]) == pytest.approx(
            [float(expected)], abs=1e-6
        )

    def test_the_best_window_counts(self, nli):
        """Of a passage of four sentences the two runs of three, of a short one the whole.

        Never less for more.
        """
        claim, scorer = "storm is covered .", NliScorer(nli)
        passage = "Storm is not covered. Theft is covered. Storm is covered. Theft."
        runs = [
            "Storm is not covered. Theft is covered. Storm is covered.",
            "Theft is covered. Storm is covered. Theft.",
        ]
        entailed = nli.entailment([(run, claim) for run in [*runs, "Storm."]])
        assert scorer.scores([claim], [[passage]])[0] == pytest.approx(entailed[:2].max(), abs=1e-6)
        assert scorer.scores([claim], [[passage, "Storm."]])[0] == pytest.approx(
            entailed.max(), abs=1e-6
        )
        assert scorer.name.startswith("nli:tiny-nli@")
