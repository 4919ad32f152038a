// Administration since 2.5: everything the matrix asks for, settings altered one by one.

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicPartition;

final class Administration {
    static Map<String, Object> run(Map<String, Object> command) throws ExecutionException, InterruptedException {
        try (AdminClient client = AdminTopics.connect()) {
            switch ((String) command.get("what")) {
                case "alter_configs":
                    alter(client, command);
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
                case "list_offsets":
                    return offsets(client, command);
                case "list_groups":
                case "describe_group":
                case "delete_group":
                    return groups(client, command);
                default:
                    return AdminTopics.run(client, command);
            }
        }
    }

    private static void alter(AdminClient client, Map<String, Object> command)
            throws ExecutionException, InterruptedException {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        for (Map.Entry<String, String> one : AdminTopics.configs(command).entrySet()) {
            ConfigEntry entry = new ConfigEntry(one.getKey(), one.getValue());
            changes.add(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
        }
        client.incrementalAlterConfigs(Collections.singletonMap(AdminTopics.resource(command), changes)).all().get();
    }

    private static OffsetSpec spec(long timestamp) {
        return timestamp == -2 ? OffsetSpec.earliest()
                : timestamp == -1 ? OffsetSpec.latest() : OffsetSpec.forTimestamp(timestamp);
    }

    private static Map<String, Object> offsets(AdminClient client, Map<String, Object> command)
            throws ExecutionException, InterruptedException {
        TopicPartition place = Lines.placeOf(command);
        List<Object> found = new ArrayList<>();
        for (Object timestamp : (List<?>) command.get("timestamps")) {
            ListOffsetsResultInfo one = client.listOffsets(
                    Collections.singletonMap(place, spec((Long) timestamp))).partitionResult(place).get();
            found.add(one.offset());
        }
        return Collections.singletonMap("offsets", found);
    }

    private static Map<String, Object> groups(AdminClient client, Map<String, Object> command)
            throws ExecutionException, InterruptedException {
        Map<String, Object> answer = new LinkedHashMap<>();
        String group = (String) command.get("group");
        switch ((String) command.get("what")) {
            case "list_groups":
                List<Object> names = new ArrayList<>();
                for (ConsumerGroupListing one : client.listConsumerGroups().all().get()) {
                    names.add(one.groupId());
                }
                answer.put("groups", names);
                return answer;
            case "describe_group":
                ConsumerGroupDescription found = client.describeConsumerGroups(Collections.singleton(group))
                        .all().get().get(group);
                answer.put("state", found.state().toString());
                answer.put("members", (long) found.members().size());
                return answer;
            default:
                client.deleteConsumerGroups(Collections.singleton(group)).all().get();
                return answer;
        }
    }
}
