// Driver of the clients in Go; see lines.py for the protocol. Arguments: which client, the broker's address.
package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
)

const (
	longValueBytes = 300
	atStart        = -2 // as "timestamp" of find
	atEnd          = -1
)

type answer = map[string]any

type place struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

type record struct {
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Timestamp *int64       `json:"timestamp"`
	Headers   [][2]*string `json:"headers"`
}

type batch struct {
	place
	Records []record `json:"records"`
}

type wanted struct {
	place
	From      int64 `json:"from"`
	Count     int   `json:"count"`
	Timestamp int64 `json:"timestamp"`
	Offset    int64 `json:"offset"`
}

type command struct {
	place
	Op         string            `json:"op"`
	From       int64             `json:"from"`
	EveryMs    int64             `json:"every_ms"`
	What       string            `json:"what"`
	Codec      string            `json:"codec"`
	Idempotent *bool             `json:"idempotent"`
	Batches    []batch           `json:"batches"`
	TimeoutMs  int64             `json:"timeout_ms"`
	Wanted     json.RawMessage   `json:"partitions"` // a list, or a number for administration
	Offsets    []wanted          `json:"offsets"`
	Group      string            `json:"group"`
	Assignor   *string           `json:"assignor"`
	Ms         int64             `json:"ms"`
	Timestamp  int64             `json:"timestamp"`
	Timestamps []int64           `json:"timestamps"`
	Offset     int64             `json:"offset"`
	Configs    map[string]string `json:"configs"`
	AtLeast    bool              `json:"at_least_once"`
	Isolation  string            `json:"isolation"`
	As         string            `json:"as"`
	Id         string            `json:"id"`
	To         string            `json:"to"`
	Count      int               `json:"count"`
	End        string            `json:"end"`
}

func (c *command) list() []wanted {
	var found []wanted
	must(json.Unmarshal(c.Wanted, &found))
	return found
}

func (c *command) number() int {
	var found int
	must(json.Unmarshal(c.Wanted, &found))
	return found
}

// A client that works for long; what goes wrong but for single records and calls is a panic.
type worker interface {
	send(*command) []answer
	join(*command)
	poll(*command) []answer
	leave()
}

// A client of the matrix.
type client interface {
	worker
	produce(*command) []answer
	consume(*command) []answer
	find(*command) []answer
	rewind(*command)
	commit(*command)
	committed(*command) []answer
	admin(*command) answer
	transaction(*command) answer
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func raw(value *string) []byte {
	if value == nil {
		return nil
	}
	return []byte(*value)
}

// Key or value as the protocol writes it.
func text(data []byte) any {
	if data == nil {
		return nil
	}
	if len(data) <= longValueBytes {
		return string(data)
	}
	digest := sha1.Sum(data)
	return fmt.Sprintf("sha1:%s:%d", hex.EncodeToString(digest[:]), len(data))
}

func (p place) line(more answer) answer {
	line := answer{"topic": p.Topic, "partition": p.Partition}
	for name, value := range more {
		line[name] = value
	}
	return line
}

func failure(code any, err error) answer {
	return answer{"code": code, "name": fmt.Sprintf("%T", err), "message": err.Error()}
}

func run(one worker, c *command) []answer {
	switch c.Op {
	case "send":
		return one.send(c)
	case "join":
		one.join(c)
	case "poll":
		return one.poll(c)
	case "leave":
		one.leave()
	default:
		return runMore(one.(client), c)
	}
	return nil
}

func runMore(one client, c *command) []answer {
	switch c.Op {
	case "produce":
		return one.produce(c)
	case "consume":
		return one.consume(c)
	case "find":
		return one.find(c)
	case "rewind":
		one.rewind(c)
	case "commit":
		one.commit(c)
	case "committed":
		return one.committed(c)
	case "admin":
		return []answer{one.admin(c)}
	case "transaction":
		return []answer{one.transaction(c)}
	default:
		panic("unknown: " + c.Op)
	}
	return nil
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "?"
}

func main() {
	output := json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	server := os.Args[2]
	clients := map[string]struct {
		module string
		make   func(string) worker
	}{
		"franz-go": {"github.com/twmb/franz-go", newFranz},
		"sarama":   {"github.com/IBM/sarama", newSarama},
	}
	chosen := clients[os.Args[1]]
	one := chosen.make(server)
	must(output.Encode(answer{"ready": os.Args[1] + " " + version(chosen.module)}))
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var c command
		must(json.Unmarshal(line, &c))
		func() {
			defer func() {
				if problem := recover(); problem != nil {
					fmt.Fprintf(os.Stderr, "%v\n%s", problem, debug.Stack())
					must(output.Encode(answer{"fatal": fmt.Sprint(problem)}))
				}
			}()
			for _, found := range run(one, &c) {
				must(output.Encode(found))
			}
		}()
		must(output.Encode(answer{"done": c.Op}))
	}
}
