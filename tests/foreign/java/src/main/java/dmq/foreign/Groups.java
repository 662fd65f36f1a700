package dmq.foreign;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Members of groups (both protocols) and transactional producers (version 2 where the broker has it), each
 * kept under the name that the command gives it. Values are text.
 */
final class Groups {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(100);
    private static final String COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
    private static final String RANGE = "org.apache.kafka.clients.consumer.RangeAssignor";

    private final String bootstrap;
    private final Map<String, KafkaConsumer<String, String>> members = new HashMap<>();
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    Groups(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    /** The answer to a command; null if it is none of ours. */
    ObjectNode answer(JsonNode command) throws Exception {
        String id = command.path("id").asText();
        ObjectNode done = JSON.createObjectNode();
        switch (command.get("op").asText()) {
            case "join":
                members.put(id, member(command));
                return done;
            case "poll":
                return poll(members.get(id));
            case "commit":
                members.get(id).commitSync();
                return done;
            case "leave":
                members.remove(id).close();
                return done;
            case "txn_start":
                producers.put(id, producer(command));
                producers.get(id).initTransactions();
                return done;
            case "txn_begin":
                producers.get(id).beginTransaction();
                return done;
            case "txn_send":
                send(producers.get(id), command);
                return done;
            case "txn_commit":
                producers.get(id).commitTransaction();
                return done;
            case "txn_abort":
                producers.get(id).abortTransaction();
                return done;
            case "txn_close":
                producers.remove(id).close(Duration.ZERO);
                return done;
            case "chain":
                return chain(command);
            default:
                return null;
        }
    }

    void close() {
        members.values().forEach(KafkaConsumer::close);
        producers.values().forEach(producer -> producer.close(Duration.ZERO));
    }

    private KafkaConsumer<String, String> member(JsonNode command) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", command.get("group").asText());
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        config.put("fetch.max.wait.ms", 50);
        String how = command.get("how").asText();
        if (how.equals("new")) {
            config.put("group.protocol", "consumer");
        } else {
            config.put("partition.assignment.strategy", how.equals("cooperative") ? COOPERATIVE : RANGE);
            config.put("session.timeout.ms", 10000);
            config.put("heartbeat.interval.ms", 300);
        }
        if (command.hasNonNull("instance")) {
            config.put("group.instance.id", command.get("instance").asText());
        }
        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(command.get("topic").asText()));
        return consumer;
    }

    private static ObjectNode poll(KafkaConsumer<String, String> member) {
        ObjectNode result = JSON.createObjectNode();
        ArrayNode records = result.putArray("records");
        for (ConsumerRecord<String, String> record : member.poll(POLL)) {
            records.addObject()
                    .put("partition", record.partition())
                    .put("offset", record.offset())
                    .put("value", record.value());
        }
        ArrayNode assigned = result.putArray("assigned");
        member.assignment().forEach(partition -> assigned.add(partition.partition()));
        return result;
    }

    private KafkaProducer<String, String> producer(JsonNode command) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", command.get("name").asText());
        config.put("linger.ms", 0);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private static void send(KafkaProducer<String, String> producer, JsonNode command) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : command.get("values")) {
            sent.add(producer.send(new ProducerRecord<>(command.get("topic").asText(), 0, null, value.asText())));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    /** Moves `count` records in transactions: each batch is aborted first, then done again and committed. */
    private ObjectNode chain(JsonNode command) throws Exception {
        int wanted = command.get("count").asInt();
        long deadline = System.currentTimeMillis() + command.get("timeout_ms").asLong();
        int moved = 0;
        int aborted = 0;
        try (KafkaConsumer<String, String> consumer = member(command);
                KafkaProducer<String, String> producer = producer(command)) {
            producer.initTransactions();
            while (moved < wanted && System.currentTimeMillis() < deadline) {
                List<ConsumerRecord<String, String>> batch = new ArrayList<>();
                consumer.poll(POLL).forEach(batch::add);
                if (batch.isEmpty()) {
                    continue;
                }
                for (boolean commits : new boolean[] {false, true}) {
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<String, String> record : batch) {
                        producer.send(new ProducerRecord<>(command.get("target").asText(), "out of " + record.value()));
                        offsets.put(
                                new TopicPartition(record.topic(), record.partition()),
                                new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    if (commits) {
                        producer.commitTransaction();
                        moved += batch.size();
                    } else {
                        producer.abortTransaction();
                        aborted++;
                    }
                }
            }
        }
        return JSON.createObjectNode().put("moved", moved).put("aborted", aborted);
    }
}
