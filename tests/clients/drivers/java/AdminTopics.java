// What every AdminClient since 0.11 can do: make and delete topics, and tell their settings.

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

final class AdminTopics {
    static AdminClient connect() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", Driver.server);
        return AdminClient.create(settings);
    }

    static ConfigResource resource(Map<String, Object> command) {
        return new ConfigResource(ConfigResource.Type.TOPIC, (String) command.get("topic"));
    }

    @SuppressWarnings("unchecked")
    static Map<String, String> configs(Map<String, Object> command) {
        return (Map<String, String>) command.get("configs");
    }

    static Map<String, Object> run(AdminClient client, Map<String, Object> command)
            throws ExecutionException, InterruptedException {
        Map<String, Object> answer = new LinkedHashMap<>();
        String topic = (String) command.get("topic");
        switch ((String) command.get("what")) {
            case "create_topic":
                NewTopic wanted = new NewTopic(topic, Lines.number(command.get("partitions")), (short) 1);
                client.createTopics(Collections.singleton(wanted.configs(configs(command)))).all().get();
                return answer;
            case "delete_topic":
                client.deleteTopics(Collections.singleton(topic)).all().get();
                return answer;
            case "describe_configs":
                Config found = client.describeConfigs(Collections.singleton(resource(command)))
                        .all().get().get(resource(command));
                Map<String, Object> values = new LinkedHashMap<>();
                for (String name : configs(command).keySet()) {
                    values.put(name, found.get(name).value());
                }
                answer.put("configs", values);
                return answer;
            default:
                throw new UnsupportedOperationException((String) command.get("what"));
        }
    }
}
