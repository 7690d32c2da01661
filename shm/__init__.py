"""Bytes shared by processes: the transport between the coordinator and its workers.

Shared memory holds payload and nothing else. Every decision about it (who may write which slot,
who still reads one) is private to the coordinator and travels as messages::

    coordinator                                        worker (N of them)
      Ring     slots and their states
      Arena    creates, gives pages back  <-- one fd -->  Arena    attaches, writes rows
      Channel  never blocks               <- messages ->  Channel  waits for the next task
      Poller   data and deaths, one wait

=============  ================================================================================
`backend`      the back end that the environment selects: TUNDISH_PORTABLE, TUNDISH_MEMORY
`memory`       Arena: one sparse, unnamed, sealed piece of memory a process, divided into slots
`ring`         Ring: which slots are free, granted, leased or quarantined; leases by weak reference
`budget`       how many bytes and cores this process may use, and where the limits come from
`channel`      Channel: whole messages over one socket a worker; a death is a `ChannelClosed`
`liveness`     Poller and sentinels: messages and deaths noticed by the same wait
`layout`       the location of each array of a batch in a slot
`encode`       elements that are not plain arrays, as bytes
=============  ================================================================================

It knows numpy and processes, not datasets.

May import nothing but the modules beside `tundish.errors`.
"""
