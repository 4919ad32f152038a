"""Several brokers of one machine, as `tidelog serve --brokers N` runs them.

The supervisor starts one process for each broker, joins their logs into one, starts a broker that
dies again, and stops them one after another. It serves no client itself. The usual questions:
- which directories, ports and settings each broker has: `arrangement.py`
- what is done when a broker is ready, dies, or is to stop: `supervisor.py`
- when a broker that hangs is ended, because all others wait for it: `stalls.py`
- how `tidelog cluster roll` asks it to restart a broker: `control.py`
- one process and its output, and how long it waits before it starts again: `child.py`
"""
