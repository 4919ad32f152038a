// Administration of 0.11: topics, and settings altered all at once.

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;

final class Administration {
    static Map<String, Object> run(Map<String, Object> command) throws ExecutionException, InterruptedException {
        try (AdminClient client = AdminTopics.connect()) {
            if (!"alter_configs".equals(command.get("what"))) {
                return AdminTopics.run(client, command);
            }
            List<ConfigEntry> entries = new ArrayList<>();
            for (Map.Entry<String, String> one : AdminTopics.configs(command).entrySet()) {
                entries.add(new ConfigEntry(one.getKey(), one.getValue()));
            }
            client.alterConfigs(Collections.singletonMap(AdminTopics.resource(command), new Config(entries)))
                    .all().get();
            return new LinkedHashMap<>();
        }
    }
}
