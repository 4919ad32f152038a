// Administration of 1.1: as 0.11, and partitions added, records deleted.

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RecordsToDelete;

final class Administration {
    static Map<String, Object> run(Map<String, Object> command) throws ExecutionException, InterruptedException {
        try (AdminClient client = AdminTopics.connect()) {
            switch ((String) command.get("what")) {
                case "alter_configs":
                    List<ConfigEntry> entries = new ArrayList<>();
                    for (Map.Entry<String, String> one : AdminTopics.configs(command).entrySet()) {
                        entries.add(new ConfigEntry(one.getKey(), one.getValue()));
                    }
                    client.alterConfigs(Collections.singletonMap(AdminTopics.resource(command), new Config(entries)))
                            .all().get();
                    return new LinkedHashMap<>();
                case "create_partitions":
                    client.createPartitions(Collections.singletonMap(
                            (String) command.get("topic"),
                            NewPartitions.increaseTo(Lines.number(command.get("partitions"))))).all().get();
                    return new LinkedHashMap<>();
                case "delete_records":
                    client.deleteRecords(Collections.singletonMap(
                            Lines.placeOf(command),
                            RecordsToDelete.beforeOffset((Long) command.get("offset")))).all().get();
                    return new LinkedHashMap<>();
                default:
                    return AdminTopics.run(client, command);
            }
        }
    }
}
