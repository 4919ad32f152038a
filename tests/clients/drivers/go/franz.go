// franz-go: everything the broker serves, in its newest versions.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	server  string
	member  *kgo.Client
	sender  *kgo.Client
	topic   string
	atLeast bool
	lock    sync.Mutex
	owned   map[place]bool
	pending map[place]map[int64]any
	kept    map[string]*transactional
}

func newFranz(server string) worker {
	return &franz{server: server, kept: map[string]*transactional{}}
}

func (f *franz) open(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(f.server, ",")...))...)
	must(err)
	return made
}

func bounded(seconds int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
}

// Kafka's number of an error, or nothing.
func code(err error) any {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Code
	}
	return nil
}

func (f *franz) produce(c *command) []answer {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[c.Codec]),
		kgo.ProducerLinger(100 * time.Millisecond),
	}
	if c.Idempotent != nil && !*c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer := f.open(options...)
	defer producer.Close()
	ctx, cancel := bounded(60)
	defer cancel()
	var answers []answer
	var wait sync.WaitGroup
	for _, batch := range c.Batches {
		offsets := make([]int64, len(batch.Records))
		line := batch.line(answer{"offsets": offsets})
		answers = append(answers, line)
		for number, one := range batch.Records {
			made := &kgo.Record{
				Topic: batch.Topic, Partition: batch.Partition, Key: raw(one.Key), Value: raw(one.Value),
			}
			if one.Timestamp != nil {
				made.Timestamp = time.UnixMilli(*one.Timestamp)
			}
			for _, header := range one.Headers {
				made.Headers = append(made.Headers, kgo.RecordHeader{Key: *header[0], Value: raw(header[1])})
			}
			wait.Add(1)
			producer.Produce(ctx, made, func(done *kgo.Record, err error) {
				defer wait.Done()
				f.lock.Lock()
				defer f.lock.Unlock()
				offsets[number] = done.Offset
				if err != nil {
					delete(line, "offsets")
					line["error"] = failure(code(err), err)
				}
			})
		}
	}
	wait.Wait()
	return answers
}

func (f *franz) send(c *command) []answer {
	if f.sender == nil {
		options := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}
		if !*c.Idempotent {
			options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
		}
		f.sender = f.open(options...)
	}
	one := newSending(c)
	for one.goesOn() {
		one.due(func(number int64, partition int32, value string) {
			sent := time.Now()
			made := &kgo.Record{Topic: c.Topic, Partition: partition, Value: []byte(value)}
			f.sender.Produce(context.Background(), made, func(done *kgo.Record, err error) {
				one.done(number, done.Partition, done.Offset, sent, err)
			})
		})
	}
	return one.answers()
}

func describe(one *kgo.Record) answer {
	headers := [][2]any{}
	for _, header := range one.Headers {
		headers = append(headers, [2]any{header.Key, text(header.Value)})
	}
	kind := map[int8]string{-1: "none", 0: "create", 1: "append"}[one.Attrs.TimestampType()]
	var timestamp any
	if !one.Timestamp.IsZero() {
		timestamp = one.Timestamp.UnixMilli()
	}
	return answer{
		"offset": one.Offset, "key": text(one.Key), "value": text(one.Value),
		"timestamp": timestamp, "timestamp_type": kind, "headers": headers,
	}
}

func (f *franz) consume(c *command) []answer {
	starts := map[string]map[int32]kgo.Offset{}
	missing, found := map[place]int{}, map[place][]answer{}
	problems := map[place]string{}
	for _, one := range c.list() {
		if starts[one.Topic] == nil {
			starts[one.Topic] = map[int32]kgo.Offset{}
		}
		starts[one.Topic][one.Partition] = kgo.NewOffset().At(one.From)
		missing[one.place], found[one.place] = one.Count, []answer{}
	}
	options := []kgo.Opt{kgo.ConsumePartitions(starts), kgo.FetchMaxWait(50 * time.Millisecond)}
	if c.Isolation == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	reader := f.open(options...)
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.TimeoutMs)*time.Millisecond)
	defer cancel()
	for len(missing) > 0 && ctx.Err() == nil {
		fetches := reader.PollFetches(ctx)
		fetches.EachError(func(topic string, partition int32, err error) {
			problems[place{topic, partition}] = err.Error()
		})
		fetches.EachRecord(func(one *kgo.Record) {
			at := place{one.Topic, one.Partition}
			found[at] = append(found[at], describe(one))
			if len(found[at]) >= missing[at] {
				delete(missing, at)
			}
		})
	}
	var answers []answer
	for _, one := range c.list() {
		line := one.line(answer{"records": found[one.place]})
		if problem, ok := problems[one.place]; ok {
			line["problem"] = problem
		}
		answers = append(answers, line)
	}
	return answers
}

func (f *franz) administrator() (*kadm.Client, context.Context, func()) {
	made := kadm.NewClient(f.open())
	ctx, cancel := bounded(60)
	return made, ctx, func() { cancel(); made.Close() }
}

// The offsets of a topic's starts, ends or of a time.
func list(ctx context.Context, client *kadm.Client, topic string, timestamp int64) kadm.ListedOffsets {
	var listed kadm.ListedOffsets
	var err error
	switch timestamp {
	case atStart:
		listed, err = client.ListStartOffsets(ctx, topic)
	case atEnd:
		listed, err = client.ListEndOffsets(ctx, topic)
	default:
		listed, err = client.ListOffsetsAfterMilli(ctx, timestamp, topic)
	}
	must(err)
	return listed
}

// The offset of a place or a time; nothing where no record is as late (the client answers the end then).
func offsetOf(ctx context.Context, client *kadm.Client, at place, timestamp int64) any {
	return offsetIn(list(ctx, client, at.Topic, timestamp), at, timestamp)
}

func offsetIn(listed kadm.ListedOffsets, at place, timestamp int64) any {
	one, _ := listed.Lookup(at.Topic, at.Partition)
	must(one.Err)
	if timestamp != atStart && timestamp != atEnd && one.Timestamp == -1 {
		return nil
	}
	return one.Offset
}

func (f *franz) find(c *command) []answer {
	client, ctx, done := f.administrator()
	defer done()
	type question struct {
		topic     string
		timestamp int64
	}
	known := map[question]kadm.ListedOffsets{} // the client asks for all partitions of a topic
	var answers []answer
	for _, one := range c.list() {
		asked := question{one.Topic, one.Timestamp}
		if known[asked] == nil {
			known[asked] = list(ctx, client, one.Topic, one.Timestamp)
		}
		offset := offsetIn(known[asked], one.place, one.Timestamp)
		answers = append(answers, one.line(answer{"offset": offset}))
	}
	return answers
}

func (f *franz) own(owned bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		f.lock.Lock()
		defer f.lock.Unlock()
		for topic, partitions := range changed {
			for _, partition := range partitions {
				if owned {
					f.owned[place{topic, partition}] = true
				} else {
					delete(f.owned, place{topic, partition})
					delete(f.pending, place{topic, partition})
				}
			}
		}
	}
}

func (f *franz) join(c *command) {
	f.owned, f.pending, f.topic = map[place]bool{}, map[place]map[int64]any{}, c.Topic
	f.atLeast = c.AtLeast
	options := []kgo.Opt{
		kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(30 * time.Second), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.OnPartitionsAssigned(f.own(true)),
		kgo.OnPartitionsRevoked(f.own(false)), kgo.OnPartitionsLost(f.own(false)),
	}
	if c.Assignor != nil {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	f.member = f.open(options...)
}

// What polling tells beside records. A lost session is told for information: the client waits and joins again,
// as long as it takes. Whoever asks for records sees whether it does; standard error says why it had to.
func notePolled(topic string, partition int32, err error) {
	var lost *kgo.ErrGroupSession
	switch {
	case errors.As(err, &lost):
		fmt.Fprintln(os.Stderr, err)
	case errors.Is(err, context.DeadlineExceeded):
	default:
		panic(fmt.Sprintf("%s %d: %v", topic, partition, err))
	}
}

func (f *franz) poll(c *command) []answer {
	deadline := time.Now().Add(time.Duration(c.Ms) * time.Millisecond)
	records := []answer{}
	for len(records) == 0 && time.Now().Before(deadline) {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		fetches := f.member.PollFetches(ctx)
		fetches.EachError(notePolled)
		fetches.EachRecord(func(one *kgo.Record) {
			at := place{one.Topic, one.Partition}
			if f.pending[at] == nil {
				f.pending[at] = map[int64]any{}
			}
			f.pending[at][one.Offset] = text(one.Value)
		})
		cancel()
		records = f.settle(records)
		f.member.AllowRebalance()
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	assignment := []answer{}
	for at := range f.owned {
		assignment = append(assignment, at.line(nil))
	}
	return []answer{{"assignment": assignment, "records": records}}
}

// Commit what was handed out; until the next poll no rebalance comes between.
func (f *franz) settle(records []answer) []answer {
	if len(f.pending) == 0 {
		return records
	}
	if f.atLeast {
		records = f.tell(records)
	}
	ctx, cancel := bounded(60)
	defer cancel()
	if err := f.member.CommitUncommittedOffsets(ctx); err != nil {
		if f.atLeast {
			fmt.Fprintln(os.Stderr, "commit:", err)
			return records
		}
		for _, changed := range []error{kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID} {
			if errors.Is(err, changed) {
				return records
			}
		}
		panic(err)
	}
	return f.tell(records)
}

func (f *franz) tell(records []answer) []answer {
	for at, values := range f.pending {
		for offset, value := range values {
			records = append(records, at.line(answer{"offset": offset, "value": value}))
		}
	}
	clear(f.pending)
	return records
}

func (f *franz) rewind(c *command) {
	client, ctx, done := f.administrator()
	defer done()
	targets := map[string]map[int32]kgo.EpochOffset{f.topic: {}}
	for at := range f.owned {
		offset := offsetOf(ctx, client, at, c.Timestamp).(int64)
		targets[at.Topic][at.Partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	clear(f.pending)
	f.member.SetOffsets(targets)
}

func (f *franz) leave() { f.member.Close() }

func (f *franz) commit(c *command) {
	client, ctx, done := f.administrator()
	defer done()
	offsets := kadm.Offsets{}
	for _, one := range c.Offsets {
		offsets.AddOffset(one.Topic, one.Partition, one.Offset, -1)
	}
	must(client.CommitAllOffsets(ctx, c.Group, offsets))
}

func (f *franz) committed(c *command) []answer {
	client, ctx, done := f.administrator()
	defer done()
	found, err := client.FetchOffsets(ctx, c.Group)
	must(err)
	var answers []answer
	for _, one := range c.list() {
		var offset any
		if known, ok := found.Lookup(one.Topic, one.Partition); ok && known.At >= 0 {
			must(known.Err)
			offset = known.At
		}
		answers = append(answers, one.line(answer{"offset": offset}))
	}
	return answers
}

func (f *franz) admin(c *command) answer {
	client, ctx, done := f.administrator()
	defer done()
	found, err := f.call(ctx, client, c)
	if err != nil {
		return answer{"error": failure(code(err), err)}
	}
	return found
}

func (f *franz) call(ctx context.Context, client *kadm.Client, c *command) (answer, error) {
	switch c.What {
	case "create_topic":
		configs := map[string]*string{}
		for name, value := range c.Configs {
			configs[name] = &value
		}
		_, err := client.CreateTopic(ctx, int32(c.number()), 1, configs, c.Topic)
		return answer{}, err
	case "create_partitions":
		found, err := client.UpdatePartitions(ctx, c.number(), c.Topic)
		return answer{}, errors.Join(err, found.Error())
	case "describe_configs":
		found, err := client.DescribeTopicConfigs(ctx, c.Topic)
		values := map[string]any{}
		for _, one := range found[0].Configs {
			if _, asked := c.Configs[one.Key]; asked {
				values[one.Key] = one.Value
			}
		}
		return answer{"configs": values}, errors.Join(err, found[0].Err)
	case "alter_configs":
		var changes []kadm.AlterConfig
		for name, value := range c.Configs {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
		}
		found, err := client.AlterTopicConfigs(ctx, changes, c.Topic)
		return answer{}, errors.Join(err, found[0].Err)
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.AddOffset(c.Topic, c.Partition, c.Offset, -1)
		found, err := client.DeleteRecords(ctx, offsets)
		return answer{}, errors.Join(err, found.Error())
	case "list_offsets":
		var offsets []any
		for _, timestamp := range c.Timestamps {
			offsets = append(offsets, offsetOf(ctx, client, c.place, timestamp))
		}
		return answer{"offsets": offsets}, nil
	case "delete_topic":
		_, err := client.DeleteTopic(ctx, c.Topic)
		return answer{}, err
	}
	return f.callGroups(ctx, client, c)
}

func (f *franz) callGroups(ctx context.Context, client *kadm.Client, c *command) (answer, error) {
	switch c.What {
	case "list_groups":
		found, err := client.ListGroups(ctx)
		names := found.Groups()
		sort.Strings(names)
		return answer{"groups": names}, err
	case "describe_group":
		found, err := client.DescribeGroups(ctx, c.Group)
		one := found[c.Group]
		return answer{"state": one.State, "members": len(one.Members)}, errors.Join(err, one.Err)
	default:
		_, err := client.DeleteGroup(ctx, c.Group)
		return answer{}, err
	}
}
