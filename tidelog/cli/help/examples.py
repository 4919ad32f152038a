"""Three examples for the help of every command and action, by their names."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final = {
    "": (
        "tidelog serve --log-dirs ./data --http 127.0.0.1:8080",
        "echo hello | tidelog produce orders",
        "tidelog consume orders --from -1h",
    ),
    "serve": (
        "tidelog serve --listeners PLAINTEXT://127.0.0.1:9092 --log-dirs ./data --http 127.0.0.1:8080",
        "tidelog serve --config server.properties --set log.retention.ms=7d",
        "tidelog serve --brokers 3 --http 127.0.0.1:8080 --log-dirs ./data",
    ),
    "dump": (
        "tidelog dump data/orders-0",
        "tidelog dump --records data/orders-0/00000000000000000000.log",
        "tidelog dump --json data/orders-0",
    ),
    "topics": (
        "tidelog topics",
        "tidelog topics create orders --partitions 6",
        "tidelog topics describe orders --json",
    ),
    "topics list": (
        "tidelog topics list",
        "tidelog topics list --json",
        "tidelog topics list --broker kafka-1:9092,kafka-2:9092",
    ),
    "topics describe": (
        "tidelog topics describe",
        "tidelog topics describe orders payments",
        "tidelog topics describe orders --json",
    ),
    "topics create": (
        "tidelog topics create orders",
        "tidelog topics create orders --partitions 6 --replication-factor 3",
        "tidelog topics create history --set retention.ms=-1 --set segment.bytes=64MiB",
    ),
    "topics delete": (
        "tidelog topics delete orders",
        "tidelog topics delete orders payments --yes",
        "tidelog topics delete orders --yes --json",
    ),
    "topics alter": (
        "tidelog topics alter orders --partitions 12",
        "tidelog topics alter orders --set retention.ms=7d --dry-run",
        "tidelog topics alter orders --unset retention.ms --yes",
    ),
    "configs": (
        "tidelog configs show orders --changed",
        "tidelog configs set orders retention.ms=7d",
        "tidelog configs show --of-broker",
    ),
    "configs show": (
        "tidelog configs show orders",
        "tidelog configs show orders retention.ms segment.ms",
        "tidelog configs show --of-broker --changed",
    ),
    "configs set": (
        "tidelog configs set orders retention.ms=7d --dry-run",
        "tidelog configs set orders retention.bytes=1GiB segment.ms=1d",
        "tidelog configs set --of-broker log.retention.ms=30d --yes",
    ),
    "configs unset": (
        "tidelog configs unset orders retention.ms --dry-run",
        "tidelog configs unset orders retention.ms segment.ms --yes",
        "tidelog configs unset --of-broker log.retention.ms",
    ),
    "configs list": (
        "tidelog configs list --directory /var/lib/tidelog",
        "tidelog configs list --directory /var/lib/tidelog --json",
        "tidelog configs list --set metadata.store=etcd://etcd-1:2379",
    ),
    "configs remove": (
        "tidelog configs remove max.connections --directory /var/lib/tidelog",
        "tidelog configs remove retention.ms --of topic:orders --directory /var/lib/tidelog --yes",
        "tidelog configs remove max.connections --of broker:2 --set metadata.store=etcd://etcd-1:2379",
    ),
    "quotas": (
        "tidelog quotas list",
        "tidelog quotas set --client-id loader producer_byte_rate=20MiB",
        "tidelog quotas unset --client-id loader producer_byte_rate",
    ),
    "quotas list": (
        "tidelog quotas list",
        "tidelog quotas list --user alice",
        "tidelog quotas list --default-client-id --json",
    ),
    "quotas set": (
        "tidelog quotas set --user alice consumer_byte_rate=2MiB",
        "tidelog quotas set --default-user request_percentage=50",
        "tidelog quotas set --ip 10.0.0.7 connection_creation_rate=5",
    ),
    "quotas unset": (
        "tidelog quotas unset --user alice consumer_byte_rate",
        "tidelog quotas unset --default-user request_percentage",
        "tidelog quotas unset --ip 10.0.0.7 connection_creation_rate",
    ),
    "groups": (
        "tidelog groups",
        "tidelog groups describe billing",
        "tidelog groups reset-offsets billing orders --to-time -2h",
    ),
    "groups list": (
        "tidelog groups list",
        "tidelog groups list --json",
        "tidelog groups list --broker kafka-1:9092",
    ),
    "groups describe": (
        "tidelog groups describe billing",
        "tidelog groups describe billing --over 10s",
        "tidelog groups describe --json",
    ),
    "groups reset-offsets": (
        "tidelog groups reset-offsets billing orders --to-time 2026-01-01T00:00Z",
        "tidelog groups reset-offsets billing orders:0,2 --to-earliest --yes",
        "tidelog groups reset-offsets billing --all-topics --shift-by -100 --yes",
    ),
    "groups delete": (
        "tidelog groups delete billing",
        "tidelog groups delete billing shipping --yes",
        "tidelog groups delete billing --yes --json",
    ),
    "groups delete-offsets": (
        "tidelog groups delete-offsets billing orders",
        "tidelog groups delete-offsets billing orders:0,2",
        "tidelog groups delete-offsets billing orders --yes",
    ),
    "transactions": (
        "tidelog transactions",
        "tidelog transactions find-hanging",
        "tidelog transactions describe payments-1",
    ),
    "transactions list": (
        "tidelog transactions list",
        "tidelog transactions list --state Ongoing --open-for 10m",
        "tidelog transactions list --matching 'orders-.*' --json",
    ),
    "transactions describe": (
        "tidelog transactions describe payments-1",
        "tidelog transactions describe payments-1 payments-2",
        "tidelog transactions describe payments-1 --json",
    ),
    "transactions find-hanging": (
        "tidelog transactions find-hanging",
        "tidelog transactions find-hanging orders --partition 0",
        "tidelog transactions find-hanging --older-than 1h",
    ),
    "transactions abort": (
        "tidelog transactions abort orders",
        "tidelog transactions abort orders --partition 0 --start-offset 1200 --yes",
        "tidelog transactions abort --id payments-1",
    ),
    "produce": (
        "echo 'key:value' | tidelog produce orders --key-separator :",
        "tidelog produce orders --file lines.txt --time 1969-07-20T20:17Z",
        "tidelog consume orders --json | tidelog produce copy --json",
    ),
    "consume": (
        "tidelog consume orders --from -1h",
        "tidelog consume orders --from 2026-01-01T00:00Z --to 2026-01-02T00:00Z --json",
        r"tidelog consume orders --follow --format '%p %o %I %k %s\n'",
    ),
    "explain": (
        "tidelog explain orders",
        "tidelog explain orders --partition 0 --why",
        "tidelog explain orders --set retention.ms=7d",
    ),
    "scrub": (
        "tidelog scrub --log-dirs /var/lib/tidelog",
        "tidelog scrub --log-dirs ./data --topic orders",
        "tidelog scrub --log-dirs ./stopped --with-active --json",
    ),
    "doctor": (
        "tidelog doctor",
        "tidelog doctor orders --partition 0",
        "tidelog doctor --json",
    ),
    "offsets": (
        "tidelog offsets orders",
        "tidelog offsets orders --at 2026-01-01T00:00Z",
        "tidelog offsets orders --appended-at -10m --partition 0",
    ),
    "times": (
        "tidelog times orders 0 1200",
        "tidelog times orders 0 1200 --json",
        "tidelog times orders 3 0 --http 127.0.0.1:8080",
    ),
    "clock": (
        "tidelog clock",
        "tidelog clock accept --dry-run",
        "tidelog clock reset orders --dry-run",
    ),
    "clock status": (
        "tidelog clock status",
        "tidelog clock status --json",
        "tidelog clock status --http broker-2:8080",
    ),
    "clock accept": (
        "tidelog clock accept --dry-run",
        "tidelog clock accept",
        "tidelog clock accept --yes --json",
    ),
    "clock reset": (
        "tidelog clock reset orders --dry-run",
        "tidelog clock reset orders --partition 0",
        "tidelog clock reset orders --yes",
    ),
    "cluster": (
        "tidelog cluster",
        "tidelog cluster doctor",
        "tidelog cluster rebalance --dry-run",
    ),
    "cluster status": (
        "tidelog cluster status",
        "tidelog cluster status --unhealthy",
        "tidelog cluster status --http broker-1:8080,broker-2:8080 --json",
    ),
    "cluster doctor": (
        "tidelog cluster doctor",
        "tidelog cluster doctor --json",
        "tidelog cluster doctor --broker broker-1:9092",
    ),
    "cluster roll": (
        "tidelog cluster roll --log-dirs ./data",
        "tidelog cluster roll 2 3 --log-dirs ./data --within 5m",
        "tidelog cluster roll --restart-with 'systemctl restart tidelog@{broker}'",
    ),
    "cluster rebalance": (
        "tidelog cluster rebalance --dry-run",
        "tidelog cluster rebalance --throttle 20MiB --at-once 5",
        "tidelog cluster rebalance --cancel",
    ),
    "cluster elect": (
        "tidelog cluster elect",
        "tidelog cluster elect orders payments:0,2",
        "tidelog cluster elect orders:1 --unclean --yes",
    ),
    "broker": (
        "tidelog broker remove 3",
        "tidelog broker remove 3 --within 2h",
        "tidelog broker forget 3",
    ),
    "broker remove": (
        "tidelog broker remove 3",
        "tidelog broker remove 3 4",
        "tidelog broker remove 3 --within 2h",
    ),
    "broker forget": (
        "tidelog broker forget 3",
        "tidelog broker forget 3 4",
        "tidelog broker forget 3 --broker broker-1:9092",
    ),
    "adopt": (
        "tidelog adopt inspect --log-dirs /var/lib/kafka --out broker-1.json",
        "tidelog adopt apply broker-1.json --set metadata.store=sqlite:./tidelog.sqlite --dry-run",
        "tidelog adopt apply broker-*.json --config cluster.properties",
    ),
    "adopt inspect": (
        "tidelog adopt inspect --log-dirs /var/lib/kafka --out broker-1.json",
        "tidelog adopt inspect --log-dirs /disk1/kafka,/disk2/kafka --out broker-1.json",
        "tidelog adopt inspect --log-dirs /var/lib/kafka --out broker-1.json --json",
    ),
    "adopt apply": (
        "tidelog adopt apply broker-1.json --set metadata.store=sqlite:./tidelog.sqlite --dry-run",
        "tidelog adopt apply broker-*.json --config cluster.properties",
        "tidelog adopt apply broker-*.json --set metadata.store=etcd://etcd-1:2379 --json",
    ),
    "delete-records": (
        "tidelog delete-records orders --before -30d --dry-run",
        "tidelog delete-records orders --before 2026-01-01T00:00Z --partition 0 --yes",
        "tidelog delete-records orders --before -30d --appended",
    ),
    "completion": (
        "source <(tidelog completion bash)",
        "source <(tidelog completion zsh)",
        "tidelog completion fish > ~/.config/fish/completions/tidelog.fish",
    ),
}
