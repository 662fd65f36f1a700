// franz-go, driven by the compatibility tests: one JSON command per line in, one JSON answer per
// line out. The commands are described in tests/foreign/programs.py. It consumes partitions
// directly; members of groups, and transactions, are in groups.go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A nil slice is JSON's null, an empty one is "": the difference that the tests are about.
type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type record struct {
	Key           []byte   `json:"key"`
	Value         []byte   `json:"value"`
	Headers       []header `json:"headers"`
	TimestampMs   *int64   `json:"timestamp_ms"`
	Offset        int64    `json:"offset"`
	TimestampType string   `json:"timestamp_type"`
}

type command struct {
	Op          string   `json:"op"`
	Topic       string   `json:"topic"`
	Partition   *int32   `json:"partition"`
	Compression string   `json:"compression"`
	Acks        string   `json:"acks"`
	Idempotent  bool     `json:"idempotent"`
	Records     []record `json:"records"`
	Offset      int64    `json:"offset"`
	Count       int      `json:"count"`
	MaxBytes    int32    `json:"max_bytes"`
	TimeoutMs   int64    `json:"timeout_ms"`
	TimestampMs *int64   `json:"timestamp_ms"`
	ID          string   `json:"id"`
	Group       string   `json:"group"`
	How         string   `json:"how"`
	Instance    string   `json:"instance"`
	Name        string   `json:"name"`
	Target      string   `json:"target"`
	Values      []string `json:"values"`
}

type answer map[string]any

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{
	"all": kgo.AllISRAcks(),
	"1":   kgo.LeaderAck(),
	"0":   kgo.NoAck(),
}

const maxRecordBytes = 8 << 20

func newClient(seed string, extra ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seed),
		kgo.AllowAutoTopicCreation(),
		kgo.UnknownTopicRetries(3),
	}, extra...)...)
}

func produce(ctx context.Context, seed string, c command) (answer, error) {
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[c.Compression]),
		kgo.ProducerBatchMaxBytes(maxRecordBytes),
		kgo.RequiredAcks(acks[c.Acks]),
		kgo.RecordRetries(3),
	}
	if !c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if c.Partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := newClient(seed, options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var sent []*kgo.Record
	for _, r := range c.Records {
		out := &kgo.Record{Topic: c.Topic, Key: r.Key, Value: r.Value}
		if c.Partition != nil {
			out.Partition = *c.Partition
		}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		if r.TimestampMs != nil {
			out.Timestamp = time.UnixMilli(*r.TimestampMs)
		}
		sent = append(sent, out)
	}
	if err := client.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return nil, err
	}
	offsets, partitions := []int64{}, []int32{}
	for _, r := range sent {
		offsets, partitions = append(offsets, r.Offset), append(partitions, r.Partition)
	}
	return answer{"offsets": offsets, "partitions": partitions}, nil
}

func consume(ctx context.Context, seed string, c command) (answer, error) {
	start := map[int32]kgo.Offset{*c.Partition: kgo.NewOffset().At(c.Offset)}
	client, err := newClient(seed,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: start}),
		kgo.FetchMaxPartitionBytes(c.MaxBytes),
		kgo.FetchMaxBytes(c.MaxBytes),
		kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []record{}
	for len(records) < c.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after %d records: %w", len(records), err)
		}
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, read(r)) })
	}
	return answer{"records": records[:c.Count]}, nil
}

func read(r *kgo.Record) record {
	timestamp := r.Timestamp.UnixMilli()
	out := record{Key: r.Key, Value: r.Value, Headers: []header{}, TimestampMs: &timestamp, Offset: r.Offset}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, header{h.Key, h.Value})
	}
	out.TimestampType = map[int8]string{0: "create", 1: "append"}[r.Attrs.TimestampType()]
	return out
}

func offsets(ctx context.Context, seed string, c command) (answer, error) {
	client, err := newClient(seed)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	beginning, err := listOffset(ctx, client, c, -2)
	if err != nil {
		return nil, err
	}
	end, err := listOffset(ctx, client, c, -1)
	if err != nil {
		return nil, err
	}
	result := answer{"beginning": beginning, "end": end, "for_time": nil}
	if c.TimestampMs != nil {
		at, err := listOffset(ctx, client, c, *c.TimestampMs)
		if err != nil {
			return nil, err
		}
		if at >= 0 {
			result["for_time"] = at
		}
	}
	return result, nil
}

func listOffset(ctx context.Context, client *kgo.Client, c command, timestamp int64) (int64, error) {
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition, partition.Timestamp = *c.Partition, timestamp
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic, topic.Partitions = c.Topic, []kmsg.ListOffsetsRequestTopicPartition{partition}
	request := kmsg.NewPtrListOffsetsRequest()
	request.Topics = []kmsg.ListOffsetsRequestTopic{topic}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	found := response.Topics[0].Partitions[0]
	return found.Offset, kerr.ErrorForCode(found.ErrorCode)
}

func topics(ctx context.Context, seed string, _ command) (answer, error) {
	client, err := newClient(seed)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	response, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, topic := range response.Topics {
		names = append(names, *topic.Topic)
	}
	return answer{"topics": names}, nil
}

func run(seed string, c command) answer {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.TimeoutMs)*time.Millisecond)
	defer cancel()
	operations := map[string]func(context.Context, string, command) (answer, error){
		"produce": produce, "consume": consume, "offsets": offsets, "topics": topics,
	}
	operation, isOne := operations[c.Op]
	if !isOne {
		operation = groups
	}
	result, err := operation(ctx, seed, c)
	if err == nil {
		return result
	}
	code := int16(-1)
	var broker *kerr.Error
	if errors.As(err, &broker) {
		code = broker.Code
	}
	return answer{"error": answer{"code": code, "message": err.Error()}}
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	decoder := json.NewDecoder(lines)
	for decoder.More() {
		var c command
		if err := decoder.Decode(&c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := out.Encode(run(os.Args[1], c)); err != nil {
			os.Exit(3)
		}
	}
}
