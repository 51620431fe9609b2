package xdsclient

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/testutils"
)

// transcript is a test of the protocol as text, in testdata/transcripts or in a test. Each line is a step and, behind "->", all that
// follows from it until nothing more happens, separated by semicolons; a line that begins with "->" goes
// on with that. What is not listed must not happen. The order counts among the calls to one watcher, and among the requests of one type to one
// server.
//
// Names: a is a cluster, e:a a ClusterLoadAssignment, dir/a a cluster in the directory of the
// collection dir/*, and * the wildcard. Resources: a=x is cluster a with the text x, a!x is one that
// is invalid for the reason x, ^a=x is in a wrapper without a name, a?Internal/x an error with that code and text in its place (xRFC TP3),
// a?unreachable and a?silent what a relay says of its own server,
// -a says that it was removed, a~ is a heartbeat. a|b=x has the alias b. a@7=x has a version of its own,
// in a wrapper if the protocol is SotW; otherwise the version is that of the response. a#90s=x has a TTL, and a#once=x must not be
// cached. a{env=prod,v=1} has
// dynamic parameters or, in watches, in requests, in removals and in errors, constraints as choose reads
// them (xRFC TP2); -a{} is for the subscription without any, and -a{*} for all, as -a is over delta. {?} cannot be read.
// [Cluster]{name:"a"}, [Endpoints]{}, [Resource]{} and type_url:"x" are resources in text, without spaces. <<x*100>> is x 100 times.
// a=x:p,!q has the text x and the ignored fields p and q, of which q matters.
//
//	watch a c=b d!         starts watches together: of a, of b under the name c, of d whose calls wait for "done d"
//	watch a=one:* b=all:b  watches as a resource what is the name of a collection, and the reverse
//	stop c                 stops watches together
//	batch stop a, watch b  does the steps while requests are held back
//	send 1 a=x b!no        sends a response with version 1 and nonce n1; send 2@1 has nonce n2
//	send e:1 a             sends one of endpoints
//	send 1 a part          sends one that is so large that it may be one of several parts
//	send ?:1               sends one without a type
//	break                  ends the stream with UNAVAILABLE; "break OK" and "break Internal why" with another status
//	refuse, accept         refuses streams from now on, and accepts them again; "refuse Internal why" gives the status
//	down, up               breaks all connections and refuses others, and accepts them again
//	hold, connect          lets no client connect, and lets them again
//	speak SotW             has the server implement SotW only from now on; "speak delta" both
//	close                  closes the client
//	stall 50000            from now on so many bytes of a connection arrive, and no more; "flow" ends it, and the connections
//	wait 15s               lets time pass; "wait 60*1s" does it a minute, and looks at the disk each second
//	limit 100              bounds the bytes of names and versions in a request
//	same a c               checks that the last values of the watches are the same pointer
//	servers a high         checks which server the version in use of a resource is from
//	decoded 3              checks how many resources were decoded
//	streams 1              checks how many streams were opened
//	works 1s               from now on a cluster takes so long to decode; after "spoil" none can be decoded
//	members 2              bounds the members of a collection
//	late stop c, send 1 a  (direct) the client writes requests after all of the steps
//	open                   (direct) opens a stream after break
//
// What is asked of the client is told in what follows:
//
//	began                  when the streams of a server were opened
//	nack                   the text of the last NACK
//	text a                 the text of the last error of a watch; "code a" its code; "transient a" whether it is transient
//	status a               what Status returns of the last error, and whether the server sent it
//	stats Unasked          counters of Stats
//	metrics                counters since the first such step, and gauges, of gRFC A78
//	connected              the servers of the dump, and whether they are connected
//	dump                   the resources of the dump: the state, the version in use and its time, the last failure, and what is ignored
//	lasts                  of what version each cluster that was decoded since was the next one
//	changes                (alone) what was recorded of resources and servers since, and when
//	log                    (alone) the warnings, and what is ignored, that were logged since
//
// What follows:
//
//	stream, closed         the client opened a stream, or left one
//	req a b                a SotW request that answers nothing; ack 1 a b and nack 1 a b answer version 1
//	ack 2 a @1             the request has another version than that; @ stands for none
//	req +a -b              a delta request; ack 1 and nack 1 answer a response; has a@1 is initial_resource_versions
//	e.req a                a request for endpoints
//	again a                a is asked for again: req -a and then req +a over SotW, req +a over delta
//	a = x                  the watcher of a got the text x; e:a = of endpoints, which have none; a = x v1 for 90s uncached of a|b with an envelope
//	a: invalid             it got an error of that kind instead of a value
//	a ambient: invalid     it got an error beside the value
//	?a = x                 may happen before what follows
//	a: invalid of high     it is from that one of several servers
//	c member x = y         the watcher of collection c got a member; c collection, c ambient x: likewise
//
// In a test over both protocols requests of both are written as those of delta, without versions.
// "sotw" or "delta" in front of a line, or of what follows, restricts it to one of them. With several
// servers "high:", "low:" or "last:" in front says which one it is.
type transcript struct {
	t       testing.TB
	types   *testTypes
	decoder *transcriptDecoder
	c       *XDSClient
	// target is c, or its view for a target.
	target  LocatorClient
	disk    *transcriptDisk // nil: there is no resource cache
	servers []*transcriptServer
	watches map[string]*transcriptWatch
	// locators has what the transcript calls the locators that are watched, by locatorText.
	locators map[string]string
	// both says that the test runs over both protocols, and protocol is that of the first server.
	both     bool
	protocol string
	// direct is the client if it has no connection.
	direct *trial
	got    *transcriptEvents // of the transcriptTest
	// told is what the client was asked in the current step, meter has been told since the first step "metrics", and
	// nack is the text of the last NACK.
	told  []string
	meter *meter
	nack  string
	began time.Time
	// logged is how much was logged, and changed how many changes were recorded, at the last step that asked for them.
	logged  int
	changed uint64
}

// transcriptTest is one test.
type transcriptTest struct {
	name string
	// over is the protocol of all servers, or the list of the protocols of each. If it is empty, the test
	// runs over both, and with two servers over each combination.
	over string
	// disk has the clients use a resource cache; see transcriptDisk.
	disk bool
	// servers has the features of each server; there is one without features if it is empty.
	servers []string
	// enveloped has values of clusters have their envelopes.
	enveloped bool
	// direct has no connection: the client writes its requests when all of a step is done.
	direct bool
	// authorities are further ones of the bootstrap.
	authorities []testutils.BootstrapOption
	// changes has the SotW responses of clusters have changes only, in place of the full state.
	changes bool
	// alone has no other test run at the same time.
	alone bool
	steps string
	// then goes on after the steps.
	then func(x *transcript)
	// got gets what is wrong, for -update. nil: it fails the test.
	got *transcriptEvents
}

func runTranscripts(t *testing.T, tests []transcriptTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, test.run)
	}
}

// run runs the test over its protocols.
func (test *transcriptTest) run(t *testing.T) {
	run := func(t *testing.T, protocols ...string) {
		if !test.alone {
			t.Parallel()
		}
		synctest.Test(t, func(t *testing.T) {
			var x *transcript
			if test.direct {
				x = newDirectTranscript(t, test.way(protocols[0]))
			} else {
				x = newTranscript(t, protocols, test.servers, test.authorities...)
			}
			if x.both = test.over == ""; test.enveloped {
				x.types.clusters = envelopedClusters()
			}
			if test.alone {
				x.logged = len(logged.String()) // the log of other tests is long
				x.tellChanges()
			}
			x.types.clusters.FullStateInSotW = !test.changes
			if test.disk {
				x.useDisk(test)
			}
			x.got = test.got
			if x.run(test.steps); test.then != nil {
				test.then(x)
			}
			x.checkNames()
		})
	}
	if test.over != "" {
		run(t, strings.Split(test.over, ", ")...)
		return
	}
	for _, high := range []string{"SotW", "delta"} {
		if len(test.servers) < 2 {
			t.Run(high, func(t *testing.T) { run(t, high) })
			continue
		}
		for _, low := range []string{"SotW", "delta"} {
			t.Run(high+", then "+low, func(t *testing.T) { run(t, high, low) })
		}
	}
}

// way is how a client without a connection speaks.
func (x *transcriptTest) way(protocol string) *checkWay {
	features := strings.Join(x.servers, " ")
	return &checkWay{
		delta: protocol == "delta", full: !x.changes, faulty: true,
		locators: strings.Contains(features, "dynamic_parameter_constraints"), keeps: !strings.Contains(features, "fail_on_data_errors"),
	}
}

// newTranscript starts the servers, which speak the protocols, the last one for those that are left, and
// have the features, and a client. The caller is in a bubble.
func newTranscript(t *testing.T, protocols, features []string, options ...testutils.BootstrapOption) *transcript {
	t.Helper()
	if len(features) == 0 {
		features = []string{""}
	}
	x := &transcript{t: t, types: newTestTypes(), protocol: strings.ToLower(protocols[0]), began: time.Now()}
	x.watches, x.locators = make(map[string]*transcriptWatch), make(map[string]string)
	x.decoder = newTranscriptDecoder(x.types.clusters)
	f := newFleet(t, len(features))
	all := make([][]string, len(f))
	for i, s := range f {
		all[i] = strings.Fields(features[i])
		delta := protocols[min(i, len(protocols)-1)] == "delta"
		if delta {
			all[i] = append(all[i], "delta")
		}
		x.servers = append(x.servers, &transcriptServer{script: s, delta: delta})
	}
	x.c = f.clientWith(all, append(options, testutils.Authority("auth", "", nil))...)
	x.target = x.c
	return x
}

// beside returns a transcript of another client of the servers, or of another target.
func (x *transcript) beside(c *XDSClient, target LocatorClient) *transcript {
	y := *x
	y.c, y.target, y.watches, y.meter, y.servers = c, target, make(map[string]*transcriptWatch), nil, nil
	for _, s := range x.servers {
		y.servers = append(y.servers, &transcriptServer{script: s.script, delta: s.delta})
	}
	return &y
}

// ask returns what a step tells.
func (x *transcript) ask(step string) []string {
	x.told = nil
	x.do(x.target, step)
	return x.told
}

// checkNames checks that subscriptions are known by canonical names as long as they are there, and not longer; and that a closed client
// has nothing left.
func (x *transcript) checkNames() {
	x.t.Helper()
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	if n := len(x.c.authorities) + len(x.c.channels); x.c.ctx.Err() != nil && n != 0 {
		x.t.Errorf("the closed client has %d authorities and channels", n)
	}
	for _, ch := range x.c.channels {
		for _, ts := range ch.types {
			known := 0
			for name, all := range ts.byCanonicalName {
				for _, s := range all {
					if known++; s.canonical != name || ts.subs.get(s.resource.key) != s {
						x.t.Errorf("%q is still known by the canonical name %q", s.resource.key.name, name)
					}
				}
			}
			for s := range ts.subs.all() {
				if s.canonical != "" {
					known--
				}
			}
			xdstest.Equal(x.t, "subscriptions by their canonical names", known, 0)
		}
	}
}

// continued is the end of a line whose list goes on in the next one.
var continued = regexp.MustCompile(`\n\s*-> `)

// run does the steps of a text, and compares what follows from each.
func (x *transcript) run(text string) {
	x.t.Helper()
	for i, line := range strings.Split(continued.ReplaceAllString(text, "; "), "\n") {
		line = x.forProtocol(strings.TrimSpace(line))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		step, follows, _ := strings.Cut(line, "->")
		x.told = nil
		x.do(x.target, golden.Repeat(strings.TrimSpace(step)))
		synctest.Wait()
		var want []string
		for _, text := range eventsOf(step, follows) {
			text = x.forProtocol(strings.TrimSpace(text))
			if name, ok := strings.CutPrefix(text, "again "); ok {
				if text = "req +" + name; x.protocol == "sotw" {
					want = append(want, "req -"+name)
				}
			}
			if text != "" {
				want = append(want, text)
			}
		}
		got := append(x.told, x.events()...)
		for i := range got {
			got[i] = shorten(got[i])
		}
		happened := slices.Clone(got)
		bySource := func(a, b string) int {
			return cmp.Compare(sourceOf(strings.TrimPrefix(a, "?")), sourceOf(strings.TrimPrefix(b, "?")))
		}
		slices.SortStableFunc(want, bySource)
		slices.SortStableFunc(got, bySource)
		right := follow(want, got)
		switch {
		case x.got != nil:
			x.got.add(i, x.protocol, happened, right)
		case !right:
			x.t.Fatalf("step %q: got\n\t%s\nwant\n\t%s", step, strings.Join(got, "; "), strings.Join(want, "; "))
		}
	}
}

// forProtocol returns the text without a leading protocol, or nothing if that is another one.
func (x *transcript) forProtocol(text string) string {
	for _, protocol := range []string{"sotw", "delta"} {
		if rest, ok := strings.CutPrefix(text, protocol+" "); ok {
			if protocol != x.protocol {
				return ""
			}
			return strings.TrimSpace(rest)
		}
	}
	return text
}

// shorten is the reverse of golden.Repeat, for what is long.
func shorten(text string) string {
	const long = 100
	var short strings.Builder
	for text != "" {
		_, size := utf8.DecodeRuneInString(text)
		char := text[:size]
		rest := strings.TrimLeft(text, char)
		if n := (len(text) - len(rest)) / size; n >= long {
			fmt.Fprintf(&short, "<<%s*%d>>", char, n)
		} else {
			short.WriteString(text[:len(text)-len(rest)])
		}
		text = rest
	}
	return short.String()
}
