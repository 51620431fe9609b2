package xdsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/internal/lrs"
)

// gRFC A27: LRS has a stream of its own, which begins when there is load to
// report. lrs.proto: the first request has the node, with the client feature for
// send_all_clusters.
func TestLoadStreamBeginsWithTheFirstCluster(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.clusters, "a")
		server.asked()
		server.noLoad()

		blue := counts(c, "blue")
		w := server.load()
		r := w.request()
		if id, features := r.GetNode().GetId(), r.GetNode().GetClientFeatures(); id != "node-1" || !slices.Contains(features, lrs.SendAllClusters) {
			t.Errorf("the first request is of node %q with features %q", id, features)
		}
		if slices.Contains(c.config.Node.GetClientFeatures(), lrs.SendAllClusters) {
			t.Error("ADS streams announce a feature of LRS")
		}
		w.quiet(time.Hour) // the server says when reports begin
		w.order(10 * time.Second)
		w.expect(10 * time.Second)
		blue.rpcs(3)
		w.expect(10*time.Second, blue.stats(10*time.Second, 3, 3, 0))
		green := counts(c, "green")
		green.locality.Start()
		pass(4 * time.Second)
		blue.rpcs(1)
		w.expect(6*time.Second, blue.stats(10*time.Second, 1, 1, 0), green.stats(10*time.Second, 1, 0, 1))
		xdstest.Equal(t, "connections to the server (that of ADS alone)", 1, server.dialled)
	})
}

// lrs.proto, LoadStatsResponse: which clusters, and how often. The server may say
// so again at any time.
func TestServerChoosesClustersAndInterval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newScript(t)
		c := server.client()
		blue, green := counts(c, "blue"), counts(c, "green")
		w := server.load()
		w.hello(10*time.Second, "green", "unknown")
		blue.rpcs(1)
		green.rpcs(2)
		w.expect(10*time.Second, green.stats(10*time.Second, 2, 2, 0))

		pass(time.Second)
		w.order(20*time.Second, "blue") // from the last report on
		blue.rpcs(1)
		w.expect(19*time.Second, blue.stats(30*time.Second, 2, 2, 0))
		green.rpcs(1)
		w.order(5 * time.Second) // all
		w.expect(5*time.Second, green.stats(25*time.Second, 1, 1, 0))

		// Neither send_all_clusters nor names: no cluster.
		w.send(&loadv3.LoadStatsResponse{LoadReportingInterval: durationpb.New(5 * time.Second), ReportEndpointGranularity: true})
		blue.rpcs(1)
		w.expect(5 * time.Second)
	})
}

// A server that asks for more reports than it can mean gets one a second.
func TestReportingIntervalHasAFloor(t *testing.T) {
	for name, interval := range map[string]*durationpb.Duration{
		"absent":   nil,
		"zero":     {},
		"negative": {Seconds: -3, Nanos: -1},
		"1 ns":     {Nanos: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := newScript(t)
				blue := counts(server.client(), "blue")
				w := server.load()
				w.request()
				w.send(&loadv3.LoadStatsResponse{LoadReportingInterval: interval, SendAllClusters: true})
				for range 3 {
					blue.rpcs(1)
					w.expect(lrs.MinInterval, blue.stats(lrs.MinInterval, 1, 1, 0))
				}
			})
		})
	}
}

// Orders without end neither hurry reports nor hold them up.
func TestOrdersDoNotMoveTheNextReport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newScript(t)
		blue := counts(server.client(), "blue")
		w := server.load()
		w.hello(time.Minute)
		for range 2 {
			blue.rpcs(1)
			for i := range 100 {
				pass(9 * time.Millisecond)
				w.order([]time.Duration{0, time.Second}[i%2])
			}
			synctest.Wait()
			if len(w.requests) > 0 {
				t.Error("a report came early")
			}
			w.expect(100*time.Millisecond, blue.stats(time.Second, 1, 1, 0))
		}
	})
}

// An interval that is none, or a message that is none, ends the stream, and does
// not count as an answer.
func TestMalformedOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newScript(t)
		counts(server.client(), "blue")
		for range 3 {
			w := server.load()
			w.request()
			w.send(&loadv3.LoadStatsResponse{LoadReportingInterval: &durationpb.Duration{Seconds: 1, Nanos: -1}, SendAllClusters: true})
			w.ended()
		}
		if w := server.load(); w.began != 7*time.Second {
			t.Errorf("the fourth stream began after %v, want the backoff's 7 s", w.began)
		}
	})
}

// gRFC A27 and grpc, doc/connection-backoff.md: as for ADS, attempts back off, from
// the beginning again once the server has answered.
func TestLoadStreamBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newScript(t)
		blue := counts(server.client(), "blue")
		server.setRefuse(status.Error(codes.Unimplemented, "no LRS here"))
		var began []time.Duration
		for range 4 {
			began = append(began, server.load().began/time.Second)
		}
		server.setRefuse(nil)
		w := server.load()
		began = append(began, w.began/time.Second)
		w.hello(20 * time.Second)
		pass(10 * time.Second)
		blue.rpcs(5)
		w.breakOff() // a stream of 10 s is replaced at once
		w = server.load()
		began = append(began, w.began/time.Second)
		w.breakOff()
		w = server.load()
		began = append(began, w.began/time.Second)
		xdstest.Equal(t, "when streams began", []time.Duration{0, 1, 3, 7, 15, 25, 27}, began)
		// All that was counted meanwhile is in the first report.
		w.hello(20 * time.Second)
		blue.rpcs(1)
		w.expect(20*time.Second, blue.stats(47*time.Second, 6, 6, 0))
	})
}

// While the server cannot be reached, counts are kept.
func TestCountsOutliveTheServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newScript(t)
		blue := counts(server.client(), "blue")
		w := server.load()
		w.hello(10 * time.Second)
		blue.rpcs(1)
		w.expect(10*time.Second, blue.stats(10*time.Second, 1, 1, 0))
		blue.rpcs(2)
		server.stop()
		pass(time.Minute)
		blue.rpcs(4)
		server.start()
		w = server.load()
		w.hello(10 * time.Second)
		stats := w.request().GetClusterStats()
		xdstest.Equal(t, "RPCs reported",
			6, stats[0].GetUpstreamLocalityStats()[0].GetTotalSuccessfulRequests())
		if d := stats[0].GetLoadReportInterval().AsDuration(); d < 70*time.Second {
			t.Errorf("the report is of %v, want more than the 70 s without the server", d)
		}
	})
}

// When the last cluster goes, its final numbers are reported and the stream ends.
func TestLoadStreamEndsWithTheLastCluster(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.clusters, "a")
		server.stream()
		blue, again := counts(c, "blue"), counts(c, "blue")
		w := server.load()
		w.hello(10 * time.Second)
		pass(time.Second)
		blue.rpcs(2)
		blue.Release()
		w.quiet(time.Second) // another channel uses it
		again.Release()
		w.expect(0, blue.stats(2*time.Second, 2, 2, 0))
		w.ended()
		server.noLoad()

		blue = counts(c, "blue")
		w = server.load()
		w.hello(10 * time.Second)
		blue.rpcs(1)
		blue.locality.Start()
		pass(time.Second)
		blue.Release()
		w.expect(0, blue.stats(time.Second, 2, 1, 1))
		// An RPC is on its way: the stream stays until it has ended.
		w.expect(10*time.Second, blue.stats(10*time.Second, 0, 0, 1))
		blue.done()
		w.expect(10*time.Second, blue.stats(10*time.Second, 0, 1, 0))
		w.ended()
		xdstest.Equal(t, "connections to the server", 1, server.dialled)
	})
}

// Nobody waits for the first answer of a server that has none once there is nothing
// to report.
func TestSilentLoadServerIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newScript(t)
		blue := counts(server.client(), "blue")
		w := server.load()
		w.request()
		pass(time.Hour)
		blue.Release()
		w.ended()
		server.noLoad()
	})
}

// The load stream keeps the connection when ADS gives it up.
func TestLoadStreamOutlivesADS(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		_, stop := listen(t, c, types.clusters, "a")
		server.stream()
		blue := counts(c, "blue")
		w := server.load()
		w.hello(10 * time.Second)
		stop()
		pass(5 * time.Second)
		blue.rpcs(1)
		w.expect(5*time.Second, blue.stats(10*time.Second, 1, 1, 0))
		listen(t, c, types.clusters, "a")
		server.stream()
		blue.Release()
		w.ended()
		xdstest.Equal(t, "connections to the server", 1, server.dialled)
	})
}

// A client that is closed reports what it has counted, also if a cluster is given
// up only afterwards, and waits no longer than a second.
func TestClosedClientReportsALastTime(t *testing.T) {
	for name, released := range map[string]bool{"clusters are given up": true, "a cluster is not given up": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := newScript(t)
				c := server.client()
				blue := counts(c, "blue")
				w := server.load()
				w.hello(10 * time.Second)
				blue.rpcs(1)
				synctest.Wait() // the client has its orders
				go c.Close()
				synctest.Wait()
				blue.rpcs(1)
				wait := lrs.Farewell / 2
				if released {
					wait = 0
					blue.Release()
				}
				w.expect(wait, blue.stats(wait, 2, 2, 0))
				w.ended()
				began := time.Now()
				if c.Close(); time.Since(began) > lrs.Farewell {
					t.Errorf("closing took %v", time.Since(began))
				}
			})
		})
	}
}

// gRPC servers take messages of up to 4 MiB.
func TestLargeReportIsSeveralMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 10_000
		server := newScript(t)
		c := server.client()
		for i := range n {
			counts(c, fmt.Sprintf("%s-%d", strings.Repeat("long-name.", 20), i)).rpcs(1)
		}
		w := server.load()
		w.hello(10 * time.Second)
		seen := make(map[string]int)
		messages := 0
		for len(seen) < n {
			r := w.request()
			messages++
			for _, s := range r.GetClusterStats() {
				seen[s.GetClusterName()]++
			}
		}
		w.quiet(time.Second)
		for name, times := range seen {
			if times != 1 {
				t.Fatalf("cluster %q was reported %d times", name, times)
			}
		}
		if messages < 4 || messages > 10 {
			t.Errorf("the report came in %d messages, want about one for each MiB", messages)
		}
	})
}

// Orders without end are read slowly, and reports go on.
func TestFloodOfOrders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newScript(t)
		blue := counts(server.client(), "blue")
		w := server.load()
		w.request()
		start := time.Now()
		for range 10_000 {
			w.order(time.Hour, "blue", strings.Repeat("x", 200))
		}
		if took := time.Since(start); took < 10*time.Second {
			t.Errorf("10,000 orders were read within %v, want them to be slowed down", took)
		}
		w.order(10 * time.Second)
		pass(time.Minute)
		synctest.Wait()
		drain(w.requests)
		w.request() // from here on a report is due every 10 s
		blue.rpcs(1)
		w.expect(10*time.Second, blue.stats(10*time.Second, 1, 1, 0))
	})
}
