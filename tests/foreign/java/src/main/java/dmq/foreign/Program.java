package dmq.foreign;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client, driven by the compatibility tests: one JSON command per line in, one JSON answer
 * per line out. The commands are described in tests/foreign/programs.py. Consumers assign
 * partitions themselves; those of groups, and transactions, are in Groups.
 */
public final class Program {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int MAX_REQUEST_BYTES = 8 << 20;

    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();

    private final Groups groups;

    private Program(String bootstrap) {
        this.bootstrap = bootstrap;
        this.groups = new Groups(bootstrap);
    }

    public static void main(String[] args) throws IOException {
        Program program = new Program(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(program.answer(JSON.readTree(line))));
        }
        program.producers.values().forEach(producer -> producer.close(Duration.ofSeconds(1)));
        program.consumers.values().forEach(KafkaConsumer::close);
        program.groups.close();
    }

    private ObjectNode answer(JsonNode command) {
        try {
            switch (command.get("op").asText()) {
                case "produce":
                    return produce(command);
                case "consume":
                    return consume(command);
                case "tail":
                    return tail(command);
                case "offsets":
                    return offsets(command);
                case "topics":
                    return topics();
                default:
                    ObjectNode done = groups.answer(command);
                    if (done == null) {
                        throw new IllegalArgumentException("unknown operation: " + command);
                    }
                    return done;
            }
        } catch (ExecutionException error) {
            return failure(error.getCause());
        } catch (Exception error) {
            return failure(error);
        }
    }

    private static ObjectNode failure(Throwable error) {
        ObjectNode result = JSON.createObjectNode();
        result.putObject("error").put("code", Errors.forException(error).code()).put("message", error.toString());
        return result;
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode command) {
        String key = command.get("compression") + "/" + command.get("acks") + "/" + command.get("idempotent");
        return producers.computeIfAbsent(key, ignored -> {
            Map<String, Object> config = new HashMap<>();
            config.put("bootstrap.servers", bootstrap);
            config.put("compression.type", command.get("compression").asText());
            config.put("acks", command.get("acks").asText());
            config.put("enable.idempotence", command.get("idempotent").asBoolean());
            config.put("max.request.size", MAX_REQUEST_BYTES);
            config.put("linger.ms", 5);
            config.put("delivery.timeout.ms", 20000);
            config.put("request.timeout.ms", 10000);
            return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        });
    }

    private ObjectNode produce(JsonNode command) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(command);
        JsonNode where = command.get("partition");
        Integer partition = where.isNull() ? null : (Integer) where.asInt();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : command.get("records")) {
            JsonNode at = record.get("timestamp_ms");
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : record.get("headers")) {
                headers.add(new RecordHeader(header.get("key").asText(), bytes(header.get("value"))));
            }
            sent.add(producer.send(new ProducerRecord<>(
                    command.get("topic").asText(), partition, at.isNull() ? null : (Long) at.asLong(),
                    bytes(record.get("key")), bytes(record.get("value")), headers)));
        }
        producer.flush();
        ObjectNode result = JSON.createObjectNode();
        ArrayNode offsets = result.putArray("offsets");
        ArrayNode partitions = result.putArray("partitions");
        for (Future<RecordMetadata> one : sent) {
            RecordMetadata metadata = one.get();
            offsets.add(metadata.hasOffset() ? metadata.offset() : -1);
            partitions.add(metadata.partition());
        }
        return result;
    }

    private KafkaConsumer<byte[], byte[]> consumer(int maxBytes) {
        return consumers.computeIfAbsent(maxBytes, ignored -> {
            Map<String, Object> config = new HashMap<>();
            config.put("bootstrap.servers", bootstrap);
            config.put("enable.auto.commit", false);
            config.put("auto.offset.reset", "none");
            config.put("max.poll.records", 100000);
            config.put("max.partition.fetch.bytes", maxBytes);
            config.put("fetch.max.bytes", maxBytes);
            config.put("fetch.max.wait.ms", 50);
            return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        });
    }

    private ObjectNode consume(JsonNode command) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(command.get("max_bytes").asInt());
        TopicPartition partition = partition(command);
        consumer.assign(List.of(partition));
        consumer.seek(partition, command.get("offset").asLong());
        return drain(consumer, command);
    }

    /** Many partitions at once, then fewer: the incremental fetch session gains and loses partitions. */
    private ObjectNode tail(JsonNode command) throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = consumer(command.get("max_bytes").asInt());
        String topic = command.get("topic").asText();
        int partitions = command.get("partitions").asInt();
        List<TopicPartition> all = new ArrayList<>();
        for (int i = 0; i < partitions; i++) {
            all.add(new TopicPartition(topic, i));
        }
        KafkaProducer<byte[], byte[]> producer = producer(command);
        ObjectNode result = JSON.createObjectNode();
        ArrayNode rounds = result.putArray("rounds");
        for (int round = 0; round < command.get("rounds").asInt(); round++) {
            List<TopicPartition> part = all.subList(round % partitions, partitions);
            consumer.assign(part);
            consumer.seekToBeginning(part);
            for (TopicPartition one : part) {
                producer.send(new ProducerRecord<>(topic, one.partition(), null, new byte[] {(byte) round})).get();
            }
            int seen = 0;
            long deadline = System.currentTimeMillis() + command.get("timeout_ms").asLong();
            while (seen < part.size() && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (record.value()[0] == round) {
                        seen++;
                    }
                }
            }
            rounds.addObject().put("assigned", part.size()).put("seen", seen);
        }
        return result;
    }

    private ObjectNode drain(KafkaConsumer<byte[], byte[]> consumer, JsonNode command) {
        int count = command.get("count").asInt();
        long deadline = System.currentTimeMillis() + command.get("timeout_ms").asLong();
        ObjectNode result = JSON.createObjectNode();
        ArrayNode records = result.putArray("records");
        while (records.size() < count && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                if (records.size() < count) {
                    write(records.addObject(), record);
                }
            }
        }
        return result;
    }

    private static void write(ObjectNode out, ConsumerRecord<byte[], byte[]> record) {
        out.put("offset", record.offset()).put("timestamp_ms", record.timestamp());
        out.put("timestamp_type", record.timestampType() == TimestampType.CREATE_TIME ? "create" : "append");
        out.put("key", text(record.key())).put("value", text(record.value()));
        ArrayNode headers = out.putArray("headers");
        for (Header header : record.headers()) {
            headers.addObject().put("key", header.key()).put("value", text(header.value()));
        }
    }

    private ObjectNode offsets(JsonNode command) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(command.get("max_bytes").asInt());
        TopicPartition partition = partition(command);
        ObjectNode result = JSON.createObjectNode();
        result.put("beginning", consumer.beginningOffsets(List.of(partition)).get(partition));
        result.put("end", consumer.endOffsets(List.of(partition)).get(partition));
        result.putNull("for_time");
        JsonNode at = command.get("timestamp_ms");
        if (!at.isNull()) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, at.asLong())).get(partition);
            if (found != null) {
                result.put("for_time", found.offset());
            }
        }
        return result;
    }

    private ObjectNode topics() {
        ObjectNode result = JSON.createObjectNode();
        ArrayNode names = result.putArray("topics");
        consumer(MAX_REQUEST_BYTES).listTopics().keySet().forEach(names::add);
        return result;
    }

    private static TopicPartition partition(JsonNode command) {
        return new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
