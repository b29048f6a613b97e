"""Pairs of questions that sound alike and have different answers, by the kind of their difference and by language.

A semantic cache must distinguish them. The kinds are those of mistakes that such caches made.
"""

from promptgroup_cli.calibration.pairs import Pair

TRAPS = {
    "roles exchanged": (
        ("can a tenant sue a landlord", "can a landlord sue a tenant"),
        ("how many dollars do I get for 100 euros", "how many euros do I get for 100 dollars"),
        ("how do I convert a csv file to json", "how do I convert a json file to csv"),
        ("does the parent inherit from the child class", "does the child inherit from the parent class"),
        ("how do I migrate from mysql to postgres", "how do I migrate from postgres to mysql"),
        ("is a wolf faster than a dog", "is a dog faster than a wolf"),
        ("can the buyer cancel after the seller has paid", "can the seller cancel after the buyer has paid"),
        ("should I eat before I train", "should I train before I eat"),
    ),
    "the not belongs to another word": (
        ("which plans have export but not import", "which plans have import but not export"),
        ("what may I eat but not drink", "what may I drink but not eat"),
        ("show users who are active and not admins", "show users who are admins and not active"),
        ("why is my card accepted online but not in shops", "why is my card accepted in shops but not online"),
    ),
    "an opposite": (
        ("how do I treat high blood pressure", "how do I treat low blood pressure"),
        ("how do I pause my subscription", "how do I resume my subscription"),
        ("sort names ascending", "sort names descending"),
        ("what are the symptoms of hyperthyroidism", "what are the symptoms of hypothyroidism"),
        ("how do I mute a channel", "how do I unmute a channel"),
        ("how do I merge two accounts", "how do I split two accounts"),
        ("is this mushroom edible", "is this mushroom poisonous"),
        ("how do I tighten the screw", "how do I loosen the screw"),
        ("which foods lower cholesterol", "which foods raise cholesterol"),
        ("how do I encrypt the disk", "how do I decrypt the disk"),
        ("is my account overdrawn", "is my account balanced"),
        ("what happens if I win the appeal", "what happens if I lose the appeal"),
    ),
    "another thing of its kind": (
        ("can I give my dog chocolate", "can I give my dog carrots"),
        ("how do I remove a red wine stain", "how do I remove a coffee stain"),
        ("how do I cook brown rice", "how do I cook white rice"),
        ("what is the dose of ibuprofen for a child", "what is the dose of paracetamol for a child"),
        ("how do I reset my pin", "how do I reset my password"),
        ("how do I declare a variable in java", "how do I declare a variable in javascript"),
        ("is the flight to paris delayed", "is the flight to rome delayed"),
        ("what is the capital gains tax in texas", "what is the capital gains tax in nevada"),
    ),
    "who or when": (
        ("can I see my bill", "can I see your bill"),
        ("may my son open an account", "may my daughter open an account"),
        ("what do I pay if I cancel", "what did I pay when I cancelled"),
        ("must I wear a helmet", "may I wear a helmet"),
        ("can I cancel before it ships", "can I cancel once it ships"),
        ("did the payment go through", "will the payment go through"),
    ),
    "all, some, only, most": (
        ("are all items refundable", "are some items refundable"),
        ("is the gym only for members", "is the gym also for members"),
        ("what is the most expensive plan", "what is the least expensive plan"),
        ("do at least two people have to sign", "do at most two people have to sign"),
        ("does every order ship free", "does any order ship free"),
        ("do both parents have to sign", "does either parent have to sign"),
    ),
    "a unit": (
        ("how much is a pint", "how much is a gallon"),
        ("is 30 degrees celsius hot", "is 30 degrees fahrenheit hot"),
        ("what is the limit in megabits", "what is the limit in megabytes"),
        ("is 50 miles per hour allowed", "is 50 kilometres per hour allowed"),
    ),
    "another language": (
        ("darf ein Mieter dem Vermieter kündigen", "darf ein Vermieter dem Mieter kündigen"),
        ("wie pausiere ich mein Abo", "wie verlängere ich mein Abo"),
        ("wann muss ich zahlen", "wann darf ich zahlen"),
        ("comment augmenter la tension", "comment baisser la tension"),
        ("le locataire peut-il poursuivre le propriétaire", "le propriétaire peut-il poursuivre le locataire"),
        ("cómo activo las notificaciones", "cómo desactivo las notificaciones"),
        ("puede el vendedor demandar al comprador", "puede el comprador demandar al vendedor"),
        ("come apro un conto", "come chiudo un conto"),
        ("hoe zet ik meldingen aan", "hoe zet ik meldingen uit"),
        ("como aumento o limite", "como diminuo o limite"),
        ("如何开启通知", "如何关闭通知"),
        ("高血圧の治療法は", "低血圧の治療法は"),
        ("как включить уведомления", "как отключить уведомления"),
        ("كيف أفتح حسابا", "كيف أغلق حسابا"),
    ),
}  # fmt: skip
"""Kind of the difference between the questions → pairs."""


def pairs() -> list[Pair]:
    """Return all pairs; none has one answer."""
    return [Pair(one, other, same=False) for kind in TRAPS.values() for one, other in kind]
