"""The table of what can be added to a graph: functions that take a RandomGraph and add one or several nodes, with their weights."""

ADDERS = {}


def op(weight=1.0):
    def register(function):
        ADDERS[function.__name__] = (function, weight)
        return function

    return register
