// The numbered records of one send: which to send now, and what became of them; see lines.py.
package main

import (
	"fmt"
	"sync"
	"time"
)

type sending struct {
	asked        *command
	partitions   int64
	next         int64
	began        time.Time
	lock         sync.Mutex
	wait         sync.WaitGroup
	acknowledged [][3]int64
	errors       [][2]any
	longest      time.Duration
}

func newSending(c *command) *sending {
	return &sending{
		asked: c, partitions: int64(c.number()), next: c.From, began: time.Now(),
		acknowledged: [][3]int64{}, errors: [][2]any{},
	}
}

// Whether there is more to send; it rests a little.
func (s *sending) goesOn() bool {
	time.Sleep(5 * time.Millisecond)
	return time.Since(s.began) < time.Duration(s.asked.Ms)*time.Millisecond
}

// Hands out the number, the partition and the value of each record that is due.
func (s *sending) due(each func(int64, int32, string)) {
	passed := time.Since(s.began).Milliseconds()
	for ; (s.next-s.asked.From)*s.asked.EveryMs < passed; s.next++ {
		s.wait.Add(1)
		each(s.next, int32(s.next%s.partitions), fmt.Sprintf("%s %d", s.asked.Topic, s.next))
	}
}

// One record is stored, or the application was told that it could not be sent.
func (s *sending) done(number int64, partition int32, offset int64, sent time.Time, err error) {
	defer s.wait.Done()
	s.lock.Lock()
	defer s.lock.Unlock()
	if err != nil {
		s.errors = append(s.errors, [2]any{number, err.Error()})
		return
	}
	s.acknowledged = append(s.acknowledged, [3]int64{number, int64(partition), offset})
	s.longest = max(s.longest, time.Since(sent))
}

// The answer, once all records have theirs.
func (s *sending) answers() []answer {
	s.wait.Wait()
	return []answer{{
		"next": s.next, "acknowledged": s.acknowledged, "errors": s.errors,
		"longest_ms": s.longest.Milliseconds(),
	}}
}
