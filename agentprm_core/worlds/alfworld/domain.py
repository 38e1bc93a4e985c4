"""The types and predicates of ALFWorld's domain (``alfred.pddl`` of alfworld 0.4.2), and which of them matter here."""

from __future__ import annotations

TYPES = {"agent", "location", "receptacle", "object", "rtype", "otype"}

STATIC = {
    **dict.fromkeys(("openable", "pickupable", "cleanable", "heatable", "coolable"), 1),
    **dict.fromkeys(("toggleable", "sliceable", "isreceptacleobject"), 1),
    **dict.fromkeys(("receptacleatlocation", "receptacletype", "objecttype"), 2),
    **dict.fromkeys(("cancontain", "inreceptacleobject"), 2),
}
"""Predicates that no action changes → number of arguments."""

FLUENT = {
    **dict.fromkeys(("atlocation", "objectatlocation", "inreceptacle", "holds"), 2),
    **dict.fromkeys(("holdsany", "opened", "isclean", "ishot", "iscool", "istoggled", "issliced"), 1),
}
"""Predicates that an action changes and that a precondition or a text reads → number of arguments."""

UNREAD = {"full", "wasinreceptacle", "checked", "examined", "ison", "moveable", "isreceptacleobjectfull"}
"""Predicates that no precondition and no text reads. In the initial state they change nothing; in a goal they are
refused, since their course is not kept."""

EMPTY_HANDED = {"holds", "holdsany"}
"""Predicates refused in the initial state: an episode starts with empty hands."""

ARITY = STATIC | FLUENT
