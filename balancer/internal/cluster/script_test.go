package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestScripts carries out the scripts of testdata, each line of which is a step and, behind "->", what is the case after it. Run with
// -update to write what is the case now. The steps are:
//
//	cluster KEY=VALUE ...      settings of the Cluster, see set; they take effect with the next endpoints
//	endpoints LOCALITY ...     the endpoints, each locality as zone/priority*weight=a,b*weight,c!STATUS,d+further+address
//	network a REACH            what happens to connections to a: up, refused, silent or mute
//	answer a HEALTH ...        the server a answers its health check, or that fails with a code
//	wait DURATION
//	exit-idle
//	unknown                    the endpoints of the cluster are not known
//	error TEXT                 the cluster has an error, whatever its endpoints
//	close
//
// After these there are the state and the open connections, of which none lingers ("a#2": the second one to a), and whether
// no new picker was published, with which gRPC picks again for RPCs that wait. The others are RPCs, after which there is where they go:
//
//	rpcs N a ...               N of them, one after the other, of which those to a ... fail; of various hashes
//	ring a                     one with the hash of a's place on a ring
//	for a,b                    some of a session that asks for a or else b, picked for again whenever there is a new picker
//	fails N a                  N of a session that asks for a, and fail
//	watches a                  the services that open health checks of a ask for, and the number of all
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	xdstest.NoError(t, err)
	for _, file := range files {
		lines := strings.Split(golden.Read(t, file), "\n")
		got := slices.Clone(lines)
		t.Cleanup(func() { golden.Check(t, file, strings.Join(got, "\n")) }) // after the subtests
		for i, line := range lines {
			name, ok := strings.CutPrefix(line, "== ")
			if !ok {
				continue
			}
			t.Run(name, lbtest.Subtest(newScript, func(_ *testing.T, s *script) {
				for j := i + 1; j < len(lines) && lines[j] != ""; j++ {
					step, _, _ := strings.Cut(lines[j], "->")
					step = strings.TrimSpace(step)
					if after := s.step(step); after != "" {
						got[j] = fmt.Sprintf("%-36s -> %s", step, after)
					}
				}
			}))
		}
	}
}

// script is a cluster whose endpoints are named by letters: "a" is "a:1".
type script struct {
	*fixture
	cluster xdsresource.Cluster
	servers map[string]*lbtest.HealthServer
	rpcs    int
	updates int            // of the picker, after the last step
	last    cluster.Config // the last one with endpoints
}

func newScript(t testing.TB) *script {
	s := &script{fixture: newFixture(t), cluster: *backend, servers: make(map[string]*lbtest.HealthServer)}
	s.cluster.EDSServiceName = t.Name() // as the limit is that of the process
	s.cluster.MaxRequests = math.MaxUint32
	s.CC.Server = func(addr string) grpc.ClientConnInterface { return s.server(addr) }
	return s
}

func (s *script) server(addr string) *lbtest.HealthServer {
	if s.servers[addr] == nil {
		s.servers[addr] = new(lbtest.HealthServer)
	}
	return s.servers[addr]
}

func (s *script) step(step string) (after string) {
	s.T.Helper()
	verb, rest, _ := strings.Cut(step, " ")
	words := strings.Fields(rest)
	switch verb {
	case "cluster":
		for _, word := range words {
			s.set(word)
		}
		return ""
	case "endpoints":
		s.endpoints(words)
	case "network":
		reach := []string{lbtest.Up: "up", lbtest.Refused: "refused", lbtest.Silent: "silent", lbtest.Mute: "mute"}
		s.Network.Set(words[0]+":1", lbtest.Reach(slices.Index(reach, words[1])))
	case "answer":
		for _, word := range words[1:] {
			s.answer(words[0], word)
		}
	case "wait":
		d, err := time.ParseDuration(rest)
		xdstest.NoError(s.T, err)
		time.Sleep(d)
	case "exit-idle":
		s.Loop.Do(s.Policy.ExitIdle)
	case "unknown":
		s.update(cluster.Config{Cluster: backend})
	case "error":
		c := s.last
		c.Err = errors.New(rest)
		s.update(c)
	case "close":
		s.Close()
	case "rpcs":
		return s.several(s.number(words[0]), func() string {
			s.rpcs++
			return s.rpc(&decision.Decision{Context: context.Background(), Extra: &decision.Extra{RPC: spread(s.rpcs)}}, words[1:]...)
		})
	case "ring":
		hash := placed(xxhash.Sum64String(rest + ":1_0"))
		return s.rpc(&decision.Decision{Context: context.Background(), Extra: &decision.Extra{RPC: hash}})
	case "for":
		return s.several(4, func() string { return s.session(strings.Split(rest, ",")) })
	case "fails":
		return s.several(s.number(words[0]), func() string { return s.rpc(rpcFor(words[1]+":1"), words[1]) })
	case "watches":
		h := s.server(rest + ":1")
		return fmt.Sprintf("%q of %d", h.Open(), len(h.Began()))
	default:
		s.T.Fatalf("unknown step %q", step)
	}
	synctest.Wait()
	after = s.CC.State().ConnectivityState.String()
	for _, addr := range s.CC.Open() {
		after += " " + named(addr)
		if made, _ := s.CC.Made(addr); made > 1 {
			after += fmt.Sprint("#", made)
		}
	}
	if updates := s.CC.Updates(); updates != s.updates {
		s.updates = updates
	} else {
		after += " (same picker)"
	}
	return after
}

// placed is the hash of an RPC.
type placed uint64

func (placed) Origin() (context.Context, string, string) { return context.Background(), "", "" }
func (p placed) Hash() (uint64, bool)                    { return uint64(p), true }

// named makes names of addresses.
func named(text string) string { return strings.ReplaceAll(text, ":1", "") }

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	xdstest.NoError(s.T, err)
	return n
}

// several returns what n RPCs come to, without doubles.
func (s *script) several(n int, rpc func() string) string {
	synctest.Wait()
	var all []string
	for range n {
		all = append(all, rpc())
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// unreachable is the beginning of the errors of RPCs whose policy has no connection, "unreachable" in scripts.
const unreachable = `dynxds: no endpoint of cluster "backend" (ClusterLoadAssignment "backend-eds") can be reached: `

// rpc returns where an RPC goes, and "waits" if it waits, or why it fails. It ends at once, with an error if its endpoint is one of those that fail.
func (s *script) rpc(d *decision.Decision, failing ...string) string {
	result, err := s.CC.State().Picker.Pick(balancer.PickInfo{Ctx: d})
	if err == balancer.ErrNoSubConnAvailable {
		synctest.Wait() // for what it connects
		return "waits"
	}
	if err != nil {
		return "(" + strings.Replace(err.Error(), unreachable, "unreachable: ", 1) + ")"
	}
	name := named(lbtest.Picked(result).Addr)
	info := balancer.DoneInfo{BytesReceived: true}
	if slices.Contains(failing, name) {
		info.Err = status.Error(codes.Internal, "it fails")
	}
	result.Done(info)
	return name
}

// session is rpc for a session. It adds what the session gets to know of the endpoint unless that is its address.
func (s *script) session(names []string) string {
	var addrs []string
	for _, n := range names {
		addrs = append(addrs, n+":1")
	}
	d := rpcFor(addrs...)
	for {
		updates := s.CC.Updates()
		to := s.rpc(d)
		if to == "waits" && s.CC.Updates() != updates {
			continue
		}
		if host := named(d.Extra.HostOverride.Host()); host != "" && host != to {
			to += " as " + host
		}
		return to
	}
}

// set changes a setting of the Cluster.
func (s *script) set(setting string) {
	s.T.Helper()
	key, value, _ := strings.Cut(setting, "=")
	c := &s.cluster
	switch key {
	case "policy":
		c.LBPolicy, c.LBConfig, c.AcrossLocalities = value, "", value == xdsresource.PolicyRingHash
	case "config":
		c.LBConfig = value
	case "across":
		c.AcrossLocalities = value == "true"
	case "sessions": // the statuses of their endpoints
		var set []xdsresource.HealthStatus
		for _, name := range strings.Split(value, ",") {
			set = append(set, statusOf(name))
		}
		c.Sessions = xdsresource.Sessions{Statuses: xdsresource.HealthSetOf(set...), IdleTimeout: time.Minute}
	case "health": // the service that is asked for; empty: no health check
		if c.HealthCheck = nil; value != "" {
			c.HealthCheck = &xdsresource.HealthCheck{Service: value}
		}
	case "outliers": // see outliers; empty: no endpoint is ejected
		if c.Outliers = nil; value != "" {
			c.Outliers = s.outliers(value)
		}
	case "limit":
		c.MaxRequests = uint32(s.number(value))
	default:
		s.T.Fatalf("unknown setting %q", key)
	}
}

// outliers returns settings of outlier detection: volume, the RPCs in an interval of which half must not fail; row, the failures in a row that
// eject at once; interval, max-time and max-percent. An ejection lasts 30 s.
func (s *script) outliers(settings string) *xdsresource.OutlierDetection {
	o := ejecting(1)
	o.FailurePercentage = nil
	for _, setting := range strings.Split(settings, ",") {
		key, value, _ := strings.Cut(setting, ":")
		duration := func() time.Duration {
			d, err := time.ParseDuration(value)
			xdstest.NoError(s.T, err)
			return d
		}
		switch key {
		case "volume":
			o.FailurePercentage = ejecting(uint32(s.number(value))).FailurePercentage
		case "row":
			o.Consecutive5xx = &xdsresource.ConsecutiveEjection{Failures: uint32(s.number(value)), EnforcementPercentage: 100}
		case "interval":
			o.Interval = duration()
		case "max-time":
			o.MaxEjectionTime = duration()
		case "max-percent":
			o.MaxEjectionPercent = uint32(s.number(value))
		default:
			s.T.Fatalf("unknown setting %q of outlier detection", key)
		}
	}
	return o
}

// statusOf returns the health status of an endpoint by its name.
func statusOf(name string) xdsresource.HealthStatus {
	for h := xdsresource.HealthUnknown; ; h++ {
		if h.String() == name {
			return h
		}
	}
}

// endpoints updates the cluster.
func (s *script) endpoints(words []string) {
	c, e := s.cluster, endpoints()
	for _, word := range words {
		place, list, _ := strings.Cut(word, "=")
		place, weight := s.weighted(place)
		zone, priority, _ := strings.Cut(place, "/")
		l := at(zone, 0)
		if l.Weight = weight; priority != "" {
			l.Priority = uint32(s.number(priority))
		}
		for _, item := range strings.Split(list, ",") {
			item, health, _ := strings.Cut(item, "!")
			item, weight := s.weighted(item)
			var addrs []string
			for _, name := range strings.Split(item, "+") {
				addrs = append(addrs, name+":1")
			}
			one := xdsresource.Endpoint{Address: addrs[0], Additional: addrs[1:], Weight: weight}
			if health != "" {
				one.Health = statusOf(health)
			}
			l.Endpoints = append(l.Endpoints, one)
		}
		e.Localities = append(e.Localities, l)
	}
	s.last = cluster.Config{Cluster: &c, Endpoints: e}
	s.update(s.last)
}

// weighted splits text*weight. The weight is 1 by default.
func (s *script) weighted(text string) (string, uint32) {
	text, weight, ok := strings.Cut(text, "*")
	if !ok {
		return text, 1
	}
	return text, uint32(s.number(weight))
}

// answer has a server answer its health check.
func (s *script) answer(name, health string) {
	if value, ok := healthpb.HealthCheckResponse_ServingStatus_value[health]; ok {
		s.server(name + ":1").Answer(healthpb.HealthCheckResponse_ServingStatus(value))
		return
	}
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(strconv.Quote(health))); err != nil {
		s.server(name + ":1").Answer(errors.New(health))
		return
	}
	s.server(name + ":1").Answer(status.Error(code, "not now"))
}

// rpcFor is an RPC of a session that asks for the addresses.
func rpcFor(addrs ...string) *decision.Decision {
	return &decision.Decision{Context: context.Background(), Extra: &decision.Extra{HostOverride: &httpfilter.HostOverride{Addresses: addrs}}}
}
