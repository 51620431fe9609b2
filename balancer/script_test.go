package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/experimental/stats/telemetry"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestScripts carries out the scripts of testdata, each line of which is a step and, behind "->", what is the case after it. Run with
// -update to write what is the case now. A step for another cluster than "backend" begins with the name of that and a colon. The steps are:
//
//	cluster KEY=VALUE ...      settings of the Cluster, see set; they take effect with the next endpoints
//	drops CATEGORY=SHARE ...   shares in a million that are dropped; they take effect with the next endpoints
//	note TEXT                  what is wrong with resources in use; it takes effect with the next endpoints
//	endpoints LOCALITY ...     the endpoints, each locality as zone/priority*weight=a,b*weight,c!STATUS,d+further+address,e@proxy,f~hostname,g^version;
//	                           zone may be region:zone:subzone
//	aggregate NAME ...         the cluster is an aggregate one over others, which are no clusters of the channel from then on
//	plugin NAME ...            the cluster is that of a plugin, which sends its RPCs to the first of the clusters NAME; "deaf-plugin": what these
//	                           report waits for the next such step
//	unknown                    neither the Cluster nor its endpoints are known; "unresolved": the endpoints are not
//	error TEXT                 the cluster has an error, whatever its endpoints; without a text: no more
//	remove                     the channel does not have the cluster any more
//	broken TEXT                the resolver reports an error
//	lazy                       clusters are not connected before their first RPC
//	record                     metrics are recorded; it is the first step
//	credentials xds            the channel leaves security to the control plane, or with "other" not; connections linger for a second, and
//	                           those that are secured, as "old", have it behind their names: "a/old"
//	secure NAME                the cluster asks for a security, see securities, and has the endpoint a
//	network a REACH            what happens to connections to a: up, refused, silent, mute or full
//	answer a HEALTH ...        the server a answers its health check, or that fails with a code
//	wait DURATION
//	exit-idle
//	end N                      the first N of the RPCs that are held end; "fail N": with an error
//	close
//
// After these there are the state of the channel and the open connections, of which none lingers ("a#2": the second one to a), and whether
// no new picker was published, with which gRPC picks again for RPCs that wait. The others are RPCs, after which there is where they go, or in
// brackets why they fail, and questions:
//
//	rpcs N a ...               N of them, one after the other, of which those to a ... fail; of various hashes
//	shares N a*1 b*0.5         N of them, which go to the endpoints in these proportions, or none of which waits
//	header x y                 one whose header "user" has the values
//	retries N                  N RPCs that are retries
//	hold N                     N RPCs that do not end; "hold-retries N": that are retries
//	ring a                     one with the hash of a's place on a ring
//	for a,b                    some of a session that asks for a or else b, picked for again whenever there is a new picker
//	hold-for N a               N of a session that asks for a, and do not end
//	fails N a                  N of a session that asks for a, and fail
//	ends a 4xINTERNAL OK       RPCs of sessions to a end, see endings; then as "ejected"
//	calls 9x100/0 50/50        RPCs of sessions to the endpoints 0, 1 ... succeed and fail, so many to each
//	ejected                    the endpoints that are ejected, and, with "record", what was counted of it until now
//	auto-host AUTHORITY        one whose route has auto_host_rewrite, and perhaps an authority of its own
//	trace                      what the trace of an RPC has of its pick
//	labels                     the telemetry labels of an RPC, by the calls that set them; "labels a": of one of a session that asks for a
//	labels-of a                those of the open connections to a
//	loads                      which load stores are in use, and what they report
//	metrics PREFIX             those that were recorded
//	subscriptions              the clusters that plugins are subscribed to
//	watches a                  the services that open health checks of a ask for, and the number of all
//	why                        what diagnostics say of the cluster
//	uses                       what they say of its priorities, or of the clusters under it
//	localities                 what they say of its endpoints
//	traffic                    the counts of its RPCs
//	made a                     how many connections to a there have been
//	providers                  how many certificate providers are open
//	look-ups                   how often the names of its endpoints were to be looked up again, up to 5
func TestScripts(t *testing.T) {
	golden.Scripts(t, "testdata/*.txt", 36, func(t testing.TB) func(string) string { return newScript(t).step })
}

// script is a channel whose endpoints are named by letters: "a" is "a:1".
type script struct {
	*tree
	clusters map[string]*scripted
	lazy     bool
	live     atomic.Pointer[inspect.Balancer]
	servers  map[string]*healthServer
	rpcs     int
	held     []func(grpcbalancer.DoneInfo)
	// securities is nil without credentials.
	securities *securities
	updates    int // of the picker, after the last step
	plugged    subscriptions
	stores     [2]*load.Store
	// labels, if not nil, gets the labels of RPCs.
	labels func(map[string]string)
	md     metadata.MD // of RPCs
}

// scripted is a cluster of a script.
type scripted struct {
	name    string
	cluster xdsresource.Cluster
	drops   []xdsresource.Drop
	lookUps int
	updates int // of the endpoints
	state   balancer.ClusterState
	over    []string // the clusters under an aggregate one
}

const backend = "backend"

// note is what is wrong with a resource.
type note string

func (n note) String() string { return string(n) }

func newScript(t testing.TB) *script {
	s := &script{clusters: make(map[string]*scripted), servers: make(map[string]*healthServer),
		plugged: subscriptions{}, stores: [2]*load.Store{load.NewStore(nil), load.NewStore(nil)}}
	s.use(newTree(t))
	t.Cleanup(func() { s.end(len(s.held), nil) }) // as they are counted for the process
	return s
}

func (s *script) use(tr *tree) {
	s.tree = tr
	balancer.SetLinger(s.policy, 0)
	s.CC.Server = func(addr string) grpc.ClientConnInterface { return s.server(addr) }
}

// named returns the cluster of a name, which it makes if need be.
func (s *script) named(name string) *scripted {
	c := s.clusters[name]
	if c == nil {
		c = &scripted{name: name, cluster: *lbtest.Cluster(name)}
		c.cluster.EDSServiceName = s.T.Name() + name // as the limit is that of the process
		c.cluster.MaxRequests = math.MaxUint32
		s.clusters[name] = c
	}
	return c
}

func (s *script) step(step string) (after string) {
	s.T.Helper()
	name := backend
	if before, rest, ok := strings.Cut(step, ": "); ok && !strings.Contains(before, " ") {
		name, step = before, rest
	}
	verb, rest, _ := strings.Cut(step, " ")
	words := strings.Fields(rest)
	c := s.named(name)
	switch verb {
	case "cluster":
		for _, word := range words {
			s.set(c, word)
		}
		return ""
	case "drops":
		c.drops = nil
		for _, word := range words {
			category, share, _ := strings.Cut(word, "=")
			c.drops = append(c.drops, xdsresource.Drop{Category: category, PerMillion: uint32(s.number(share))})
		}
		return ""
	case "note":
		c.state.Notes = note(rest)
		return ""
	case "lazy":
		s.lazy = true
		return ""
	case "record":
		s.use(newRecordedTree(s.T))
		return ""
	case "credentials":
		s.useCredentials(rest == "xds")
		return ""
	case "secure":
		c.cluster.Security = s.securities.byName[rest]
		s.endpoints(c, []string{"z=a"})
		s.publish(c)
	case "endpoints":
		s.endpoints(c, words)
		s.publish(c)
	case "aggregate":
		c.over = words
		s.publish(c)
	case "plugin", "deaf-plugin":
		c.over, c.state = nil, *chooserOf(chooserConfig{Clusters: words, Deaf: verb == "deaf-plugin"})
		s.publish(c)
	case "broken":
		s.policy.ResolverError(status.Error(codes.Internal, rest))
	case "unknown":
		c.state.Cluster, c.state.Endpoints, c.state.Err = nil, nil, nil
		s.publish(c)
	case "unresolved":
		of := c.cluster
		c.over, c.state.Underlying = nil, nil
		c.state.Cluster, c.state.Endpoints, c.state.Err = &of, nil, nil
		s.publish(c)
	case "error":
		if c.state.Err = nil; rest != "" {
			c.state.Err = errors.New(rest)
		}
		s.publish(c)
	case "remove":
		delete(s.clusters, name)
		xdstest.NoError(s.T, s.update(states{name: nil}, s.defaults))
	case "network":
		reach := []string{lbtest.Up: "up", lbtest.Refused: "refused", lbtest.Silent: "silent", lbtest.Mute: "mute", lbtest.Full: "full"}
		s.CC.Set(long(words[0]), lbtest.Reach(slices.Index(reach, words[1])))
	case "answer":
		for _, word := range words[1:] {
			s.answer(words[0], word)
		}
	case "wait":
		d, err := time.ParseDuration(rest)
		xdstest.NoError(s.T, err)
		time.Sleep(d)
	case "exit-idle":
		s.policy.ExitIdle()
	case "end":
		s.end(s.number(rest), nil)
	case "fail":
		s.end(s.number(rest), errFails)
	case "close":
		s.policy.Close()
	default:
		return s.ask(name, verb, rest, words)
	}
	synctest.Wait()
	after = s.CC.State().ConnectivityState.String()
	for _, addr := range s.CC.Open() {
		after += " " + short(addr)
		if made := s.CC.Made(addr); made > 1 {
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

// end ends the first n of the RPCs that are held.
func (s *script) end(n int, err error) {
	for _, done := range s.held[:n] {
		done(grpcbalancer.DoneInfo{BytesSent: true, BytesReceived: true, Err: err})
	}
	s.held = s.held[n:]
}

// publish updates the channel with a cluster that has changed, or the aggregate cluster over it.
func (s *script) publish(c *scripted) {
	changes := make(states)
	for _, top := range s.clusters {
		if top.over == nil {
			continue
		}
		list := &balancer.Underlying{Names: top.over}
		members := list.States.Edit()
		for _, name := range top.over {
			state := s.named(name).state
			members.Set(name, &state)
			changes[name] = nil
		}
		list.States = members.Map()
		top.state = balancer.ClusterState{Cluster: &xdsresource.Cluster{Name: top.name, Kind: xdsresource.ClusterAggregate}, Underlying: list,
			Err: top.state.Err, Notes: top.state.Notes}
	}
	for _, top := range s.clusters {
		if _, under := changes[top.name]; !under && (top == c || top.over != nil) {
			state := top.state
			changes[top.name] = &state
		}
	}
	xdstest.NoError(s.T, s.update(changes, s.defaults))
}

func (s *script) defaults(state *balancer.State) {
	state.Live, state.Subscribe = &s.live, s.plugged.subscribe
	if !s.lazy {
		state.Default, state.Connect = slices.Collect(maps.Keys(s.clusters)), true
	}
}

// short makes names of addresses, and long an address of a name.
func short(text string) string { return strings.ReplaceAll(text, ":1", "") }

func long(name string) string {
	name, security, secured := strings.Cut(name, "/")
	if secured {
		security = "/" + security
	}
	return name + ":1" + security
}

func (s *script) number(text string) int {
	n, err := strconv.ParseUint(text, 10, 32)
	xdstest.NoError(s.T, err)
	return int(n)
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

// rpc returns where an RPC to a cluster goes, and "waits" if it waits, or why it fails. Unless it is held it ends at once, with an error if
// its endpoint is one of those that fail.
func (s *script) rpc(name string, extra *decision.Extra, retry, hold bool, failing ...string) string {
	ctx := context.Background()
	extra.Retry = retry
	if s.md != nil {
		ctx = metadata.NewOutgoingContext(ctx, s.md)
	}
	if s.labels != nil {
		ctx = telemetry.NewContextWithLabelCallback(ctx, s.labels)
	}
	if extra.RPC == nil {
		extra.RPC = hash(0)
	}
	d := &decision.Decision{Context: ctx, Version: s.last.Version, Cluster: name, Extra: extra}
	result, err := s.CC.State().Picker.Pick(grpcbalancer.PickInfo{Ctx: d})
	if err == grpcbalancer.ErrNoSubConnAvailable {
		synctest.Wait() // for what it connects
		return "waits"
	}
	if err != nil {
		text := err.Error()
		for _, c := range s.clusters { // What the errors of RPCs whose policy has no connection begin with.
			text = strings.ReplaceAll(text, fmt.Sprintf("dynxds: no endpoint of cluster %q (ClusterLoadAssignment %q) can be reached: ", c.name, c.name+"-eds"), "")
		}
		if of, isStatus := status.FromError(err); isStatus {
			text = strings.Replace(text, fmt.Sprintf("rpc error: code = %v desc = ", of.Code()), strings.ToUpper(of.Code().String())+" ", 1)
		}
		return "(" + d.Failure() + ": " + text + ")"
	}
	to := short(lbtest.Picked(result).Addr)
	if hold {
		s.held = append(s.held, result.Done)
		return to
	}
	info := grpcbalancer.DoneInfo{BytesSent: true, BytesReceived: true}
	if slices.Contains(failing, to) {
		info.Err = errFails
	}
	result.Done(info)
	if result.Metadata != nil {
		to += fmt.Sprint(" with authority ", result.Metadata[":authority"])
	}
	return to
}

var errFails = status.Error(codes.Internal, "it fails")

// sessionOf is an RPC of a session that asks for the endpoints.
func sessionOf(names ...string) *decision.Extra {
	var addrs []string
	for _, n := range names {
		addrs = append(addrs, n+":1")
	}
	return &decision.Extra{HostOverride: &httpfilter.HostOverride{Addresses: addrs}}
}

// session is rpc for a session. It adds what the session gets to know of the endpoint unless that is its address.
func (s *script) session(name string, names []string) string {
	extra := sessionOf(names...)
	for {
		updates := s.CC.Updates()
		to := s.rpc(name, extra, false, false)
		if to == "waits" && s.CC.Updates() != updates {
			continue
		}
		if host := short(extra.HostOverride.Host()); host != "" && host != to {
			to += " as " + host
		}
		return to
	}
}
