package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const pollFor = 100 * time.Millisecond

// A member of a group, and what it owns.
type member struct {
	client *kgo.Client
	mutex  sync.Mutex
	owned  map[int32]bool
}

var members = map[string]*member{}
var transactors = map[string]*kgo.Client{}

func (m *member) note(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		for _, partitions := range changed {
			for _, partition := range partitions {
				if owns {
					m.owned[partition] = true
				} else {
					delete(m.owned, partition)
				}
			}
		}
	}
}

func groupOptions(c command) []kgo.Opt {
	balancer := kgo.CooperativeStickyBalancer()
	if c.How == "eager" {
		balancer = kgo.RangeBalancer()
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topic),
		kgo.Balancers(balancer),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(10 * time.Second),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.FetchMaxWait(50 * time.Millisecond),
	}
	if c.Instance != "" {
		options = append(options, kgo.InstanceID(c.Instance))
	}
	return options
}

func join(seed string, c command) (answer, error) {
	m := &member{owned: map[int32]bool{}}
	client, err := newClient(seed, append(groupOptions(c),
		kgo.OnPartitionsAssigned(m.note(true)),
		kgo.OnPartitionsRevoked(m.note(false)),
		kgo.OnPartitionsLost(m.note(false)))...)
	m.client = client
	members[c.ID] = m
	return answer{}, err
}

func poll(c command) (answer, error) {
	m := members[c.ID]
	ctx, cancel := context.WithTimeout(context.Background(), pollFor)
	defer cancel()
	fetches := m.client.PollFetches(ctx)
	for _, problem := range fetches.Errors() {
		if !errors.Is(problem.Err, context.DeadlineExceeded) {
			return nil, problem.Err
		}
	}
	records := []answer{}
	fetches.EachRecord(func(r *kgo.Record) {
		records = append(records, answer{
			"partition": r.Partition, "offset": r.Offset, "value": string(r.Value),
		})
	})
	m.mutex.Lock()
	defer m.mutex.Unlock()
	assigned := []int32{}
	for partition := range m.owned {
		assigned = append(assigned, partition)
	}
	sort.Slice(assigned, func(i, j int) bool { return assigned[i] < assigned[j] })
	return answer{"records": records, "assigned": assigned}, nil
}

func transactor(seed string, c command) (answer, error) {
	client, err := newClient(seed, kgo.TransactionalID(c.Name), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	transactors[c.ID] = client
	return answer{}, err
}

func sendIn(ctx context.Context, c command) error {
	var sent []*kgo.Record
	for _, value := range c.Values {
		sent = append(sent, &kgo.Record{Topic: c.Topic, Value: []byte(value)})
	}
	return transactors[c.ID].ProduceSync(ctx, sent...).FirstErr()
}

// Moves records in transactions: each batch is aborted first, then done again and committed.
func chain(ctx context.Context, seed string, c command) (answer, error) {
	session, err := kgo.NewGroupTransactSession(append(groupOptions(c),
		kgo.SeedBrokers(seed), kgo.TransactionalID(c.Name))...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	moved, aborted := 0, 0
	commits := false
	for moved < c.Count {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		var failed error
		fetches.EachRecord(func(r *kgo.Record) {
			out := &kgo.Record{Topic: c.Target, Value: []byte("out of " + string(r.Value))}
			session.Produce(ctx, out, func(_ *kgo.Record, err error) {
				if err != nil {
					failed = err
				}
			})
		})
		// What is aborted shall have been written before.
		if err := session.Client().Flush(ctx); err != nil {
			return nil, err
		}
		ended, err := session.End(ctx, kgo.TransactionEndTry(commits))
		if err == nil {
			err = failed
		}
		if err != nil {
			return nil, err
		}
		if ended {
			moved += fetches.NumRecords()
		} else {
			aborted++
		}
		commits = !commits
	}
	return answer{"moved": moved, "aborted": aborted}, nil
}

func groups(ctx context.Context, seed string, c command) (answer, error) {
	switch c.Op {
	case "join":
		return join(seed, c)
	case "poll":
		return poll(c)
	case "commit":
		return answer{}, members[c.ID].client.CommitUncommittedOffsets(ctx)
	case "leave":
		members[c.ID].client.Close()
		delete(members, c.ID)
		return answer{}, nil
	case "txn_start":
		return transactor(seed, c)
	case "txn_begin":
		return answer{}, transactors[c.ID].BeginTransaction()
	case "txn_send":
		return answer{}, sendIn(ctx, c)
	case "txn_commit":
		return answer{}, transactors[c.ID].EndTransaction(ctx, kgo.TryCommit)
	case "txn_abort":
		return answer{}, transactors[c.ID].EndTransaction(ctx, kgo.TryAbort)
	case "txn_close":
		transactors[c.ID].Close()
		delete(transactors, c.ID)
		return answer{}, nil
	case "chain":
		return chain(ctx, seed, c)
	}
	return nil, fmt.Errorf("unknown operation %q", c.Op)
}
