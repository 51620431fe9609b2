package xdsclient

import (
	"fmt"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// A server that sends one response without end, and reads no answer before it sends the
// next, is slowed down, and the other types on the stream are served all the same.
func TestFloodOfARepeatedResponse(t *testing.T) {
	for name, tc := range map[string]struct {
		word, metric string
		each         int64
	}{
		"valid":   {"a=blue", "resource_updates_valid", 2},
		"invalid": {"a!blue", "resource_updates_invalid", 1},
	} {
		t.Run(name, func(t *testing.T) {
			(&transcriptTest{over: "SotW", steps: `metrics
				watch a b e:e -> stream; req a b; e.req e
				send e:1 e -> e.ack 1 e; e:e =`, then: func(x *transcript) {
				const flood = 20_000
				s, start := x.servers[0], time.Now()
				var between time.Duration
				for i := range flood {
					s.send(x, fmt.Sprint(i, "@1"), []string{tc.word, "b=blue"})
					if i == flood/2 {
						asked := time.Now()
						s.send(x, "e:2", []string{`[Endpoints]{cluster_name:"e",named_endpoints:{key:"x"}}`})
						x.watches["e:e"].ear.next()
						between = time.Since(asked)
					}
				}
				took := time.Since(start)
				pass(20 * time.Second) // the last are read, and their answer is held back, for some seconds
				if took < 20*time.Second {
					t.Errorf("%d repetitions were read within %v, want them to be slowed down", flood, took)
				}
				if between > 5*time.Second {
					t.Errorf("a response of another type took %v", between)
				}
				stats := x.c.Stats()
				if stats.Responses != flood+2 || stats.Decoded > 5 {
					t.Errorf("%d responses, of which %d resources were decoded; want %d and at most 5", stats.Responses, stats.Decoded, flood+2)
				}
				xdstest.Equal(t, "resources that the metrics count", tc.each*flood,
					x.meter.read(t)[tc.metric+"{xds:///t,passthrough:///0,envoy.config.cluster.v3.Cluster}"])
				last, answers := "", 0
				for r := s.stream.next(); r != nil; r = s.stream.next() {
					if r.typeURL == x.types.clusters.TypeURL {
						last = r.nonce
						answers++
					}
				}
				xdstest.Equal(t, "the last answer is to", fmt.Sprint("n", flood-1), last)
				if answers > flood/100 {
					t.Errorf("there were %d answers to %d repetitions", answers, flood)
				}
			}}).run(t)
		})
	}
}

// A flood of responses for a type that nothing is subscribed to is slowed down too.
func TestFloodOfIgnoredResponses(t *testing.T) {
	(&transcriptTest{over: "SotW", steps: "watch a -> stream; req a\nsend 1 a=blue -> ack 1 a; a = blue", then: func(x *transcript) {
		const flood = 10_000
		start := time.Now()
		for range flood {
			x.servers[0].send(x, "e:1", []string{"e"})
		}
		x.servers[0].send(x, "2", []string{"a=green"})
		x.watches["a"].ear.next()
		if took := time.Since(start); took < 10*time.Second {
			t.Errorf("%d responses were read within %v, want them to be slowed down", flood, took)
		}
		xdstest.Equal(t, "responses ignored", flood, x.c.Stats().Ignored)
	}}).run(t)
}
