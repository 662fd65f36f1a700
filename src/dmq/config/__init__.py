"""Settings: one table of definitions, and what is read from it.

A setting is a field of a frozen dataclass, declared with `definitions.setting`; from these fields
come parsing, checking, DescribeConfigs, `docs/CONFIGURATION.md` and `dmq config list`.

    definitions.py     types, parsing and printing of values, ConfigDef
    checks.py          what a value may be
    topic.py           TopicConfig: every topic config
    broker*.py         BrokerConfig: every broker setting, by subject
    group.py           GroupConfig, ClientMetricsConfig
    settings.py        Settings: static, cluster-wide and per-broker values laid over each other
    describe.py        what DescribeConfigs answers
    rules.py           what AlterConfigs and CreateTopics may set
    load.py            flags, environment and file → BrokerConfig
    document.py        the table as Markdown

Everything but `load.py`, which reads a file, is pure. Callers import the modules by name; this
package imports none of them, so that a pure core that needs `topic.py` does not reach `load.py`.
"""
