package xdsclient

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
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
// -a says that it was removed, a~ is a heartbeat. a|b=x has the alias b. a@7=x has a version of its own,
// in a wrapper if the protocol is SotW; otherwise the version is that of the response. a{env=prod,v=1} has
// dynamic parameters or, in watches, in requests, in removals and in errors, constraints as choose reads
// them (xRFC TP2); -a{} is for the subscription without any, and -a{*} for all, as -a is over delta.
//
//	watch a c=b d!         starts watches together: of a, of b under the name c, of d whose calls wait for "done d"
//	stop c                 stops watches together
//	batch stop a, watch b  does the steps while requests are held back
//	send 1 a=x b!no        sends a response with version 1 and nonce n1; send 2@1 has nonce n2
//	send e:1 a             sends one of endpoints
//	send 1 a part          sends one that is so large that it may be one of several parts
//	send ?:1               sends one without a type
//	break                  ends the stream with UNAVAILABLE; "break OK" and "break Internal why" with another status
//	refuse, accept         refuses streams from now on, and accepts them again; "refuse Internal why" gives the status
//	down, up               breaks all connections and refuses others, and accepts them again
//	speak SotW             has the server implement SotW only from now on; "speak delta" both
//	close                  closes the client
//	wait 15s               lets time pass
//	same a c               checks that the last values of the watches are the same pointer
//	servers a high         checks which server the version in use of a resource is from
//	decoded 3              checks how many resources were decoded
//	streams 1              checks how many streams were opened
//	late stop c, send 1 a  (direct) the client writes requests after all of the steps
//	open                   (direct) opens a stream after break
//
// What is asked of the client is told in what follows:
//
//	began                  when the streams of a server were opened
//	nack                   the text of the last NACK
//	text a                 the text of the last error of a watch; "code a" its code; "transient a" whether it is transient
//	stats Unasked          counters of Stats
//	metrics                counters since the first such step, and gauges, of gRFC A78
//	connected              the servers of the dump, and whether they are connected
//	dump                   the resources of the dump: the state, the version in use and its time, and the last failure
//
// What follows:
//
//	stream, closed         the client opened a stream, or left one
//	req a b                a SotW request that answers nothing; ack 1 a b and nack 1 a b answer version 1
//	ack 2 a @1             the request has another version than that; @ stands for none
//	req +a -b              a delta request; ack 1 and nack 1 answer a response; has a@1 is initial_resource_versions
//	e.req a                a request for endpoints
//	again a                a is asked for again: req -a and then req +a over SotW, req +a over delta
//	a = x                  the watcher of a got the text x; e:a = of endpoints, which have none; a = x v1 with an envelope
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
	t       *testing.T
	types   *testTypes
	c       *XDSClient
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
	steps   string
	// then, if not nil, checks what a transcript cannot say.
	then func(x *transcript)
	// got gets what is wrong, for -update. nil: it fails the test.
	got *transcriptEvents
}

func runTranscripts(t *testing.T, tests []transcriptTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run := func(t *testing.T, protocols ...string) {
				bubble(t, func(t *testing.T) {
					var x *transcript
					if test.direct {
						x = newDirectTranscript(t, test.way(protocols[0]))
					} else {
						x = newTranscript(t, protocols, test.servers, test.authorities...)
					}
					if x.both = test.over == ""; test.enveloped {
						x.types.clusters = envelopedClusters()
					}
					x.types.clusters.FullStateInSotW = !test.changes
					if test.disk {
						x.useDisk(&test)
					}
					x.got = test.got
					if x.run(test.steps); test.then != nil {
						test.then(x)
					}
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
		})
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
	return x
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
		x.do(x.c, strings.TrimSpace(step))
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

// eventsOf splits what follows from a step. Texts stay whole.
func eventsOf(step, follows string) []string {
	if verb, _, _ := strings.Cut(step, " "); verb == "text" || verb == "nack" {
		return []string{follows}
	}
	return strings.Split(follows, ";")
}

// follow reports whether events are those that are wanted, but for those that may be missing.
func follow(want, got []string) bool {
	for _, text := range want {
		text, optional := strings.CutPrefix(text, "?")
		if len(got) > 0 && got[0] == text {
			got = got[1:]
		} else if !optional {
			return false
		}
	}
	return len(got) == 0
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

var transcriptServers = []string{"high", "low", "last"}

// sourceOf returns what the order of an event counts among: the messages of one server and type, or
// the calls for one resource to one watcher.
func sourceOf(event string) string {
	server := ""
	for _, name := range transcriptServers {
		if rest, ok := strings.CutPrefix(event, name+": "); ok {
			server, event = name, rest
		}
	}
	words := strings.FieldsFunc(event, func(r rune) bool { return r == ' ' || r == ':' })
	typ, verb, ok := strings.Cut(words[0], ".")
	if !ok {
		typ, verb = "", words[0]
	}
	switch {
	case slices.Contains([]string{"req", "ack", "nack", "stream", "closed"}, verb):
		return server + " " + typ
	case strings.Contains(event, " member ") || strings.Contains(event, " ambient "):
		return words[0] + " " + words[2]
	default:
		return strings.TrimSuffix(event[:strings.IndexByte(event+" ", ' ')], ":")
	}
}

// server returns the server that a step is for, and the rest of the step.
func (x *transcript) server(step string) (*transcriptServer, string) {
	for i, name := range transcriptServers {
		if rest, ok := strings.CutPrefix(step, name+": "); ok {
			return x.servers[i], rest
		}
	}
	return x.servers[0], step
}

func (x *transcript) do(c LocatorClient, step string) {
	x.t.Helper()
	s, step := x.server(step)
	verb, rest, _ := strings.Cut(step, " ")
	switch words := strings.Fields(rest); verb {
	case "watch":
		c.Batch(func() {
			for _, word := range words {
				x.watch(c, word)
			}
		})
	case "stop":
		c.Batch(func() {
			for _, name := range words {
				x.watches[name].stop()
			}
		})
	case "batch":
		c.Batch(func() {
			for step := range strings.SplitSeq(rest, ", ") {
				x.do(c, step)
				synctest.Wait()
			}
		})
	case "disk":
		x.doDisk(rest)
	case "late":
		for step := range strings.SplitSeq(rest, ", ") {
			x.do(c, step)
			synctest.Wait()
		}
	case "open":
		x.direct.open()
		x.opened()
	case "done":
		for _, name := range words {
			w := x.watches[name]
			if w.collection != nil {
				(<-w.collection.keep)()
				continue
			}
			w.owed[0]()
			w.owed = w.owed[1:]
		}
	case "send":
		s.send(x, words[0], words[1:])
	case "break":
		s.stream.endWith(statusOf(x.t, cmp.Or(rest, "Unavailable off for lunch")))
		s.stream = nil
	case "refuse":
		s.setRefuse(statusOf(x.t, cmp.Or(rest, "Unavailable no more streams")))
	case "down":
		s.stop()
	case "up":
		s.start()
	case "speak":
		s.setSotWOnly(rest == "SotW")
	case "close":
		x.c.Close()
	case "accept":
		s.setRefuse(nil)
	case "wait":
		d, err := time.ParseDuration(rest)
		xdstest.NoError(x.t, err)
		pass(d)
	case "same":
		for _, name := range words[1:] {
			if x.watches[name].value != x.watches[words[0]].value {
				x.t.Errorf("%s and %s have different values", words[0], name)
			}
		}
	case "servers":
		for _, r := range x.c.Dump().Resources {
			if r.Name == words[0] {
				xdstest.Equal(x.t, "server of "+r.Name, words[1], serverNamed(r.Server))
			}
		}
	case "decoded":
		xdstest.Equal(x.t, "resources decoded", rest, fmt.Sprint(x.types.decoded.Load()))
	case "streams":
		xdstest.Equal(x.t, "streams opened", rest, fmt.Sprint(len(s.attempts())))
	default:
		x.told = append(x.told, x.tell(s, verb, words)...)
	}
}

// tell returns what a step asks of the client.
func (x *transcript) tell(s *transcriptServer, verb string, words []string) (told []string) {
	x.t.Helper()
	switch verb {
	case "text", "code", "transient":
		err := x.watches[words[0]].err
		if err == nil {
			x.t.Fatalf("%s has had no error", words[0])
		}
		return []string{map[string]string{"text": err.Error(), "code": err.Code.String(), "transient": fmt.Sprint(err.Transient)}[verb]}
	case "began":
		return []string{strings.Trim(fmt.Sprint(s.attempts()), "[]")}
	case "nack":
		return []string{x.nack}
	case "stats":
		stats := reflect.ValueOf(x.c.Stats())
		for _, name := range words {
			told = append(told, fmt.Sprintf("%s %v", name, stats.FieldByName(name)))
		}
	case "metrics":
		if x.meter == nil {
			x.meter = newMeter()
			x.t.Cleanup(x.c.Attach("xds:///t", x.meter))
		}
		counts := x.meter.read(x.t)
		short := strings.NewReplacer("xds:///t,", "", "passthrough:///0", "high", "envoy.config.cluster.v3.", "")
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			told = append(told, fmt.Sprintf("%s %d", short.Replace(name), counts[name]))
		}
	case "connected":
		for _, d := range x.c.Dump().Servers {
			text := fmt.Sprintf("%s %v", serverNamed(d.URI), d.Connected)
			if !d.NextAttempt.IsZero() {
				text += fmt.Sprintf(", next attempt in %v", time.Until(d.NextAttempt))
			}
			if d.Err != nil {
				text += fmt.Sprintf(": %v", d.Err)
			}
			told = append(told, text)
		}
	case "dump":
		for _, r := range x.c.Dump().Resources {
			told = append(told, x.dumped(&r))
		}
	default:
		x.t.Fatalf("unknown step %q", verb)
	}
	return told
}

// dumped writes a resource of the dump.
func (x *transcript) dumped(r *ResourceDump) string {
	text := strings.ReplaceAll(r.Name, collectionDir, "dir/")
	if !r.Constraints.IsZero() {
		text += r.Constraints.String()
	}
	text += " " + string(r.State)
	if r.Cached() {
		m := cluster("", "")
		_ = r.Any().UnmarshalTo(m) // endpoints have no text
		text += fmt.Sprintf(" %s version %s of %s at %v", m.GetAltStatName(), r.Version, serverNamed(r.Server), r.LastUpdated.Sub(x.began))
		if r.Value() == nil {
			x.t.Errorf("%q has no value", r.Name)
		}
		if !r.Parameters.IsZero() {
			text += " " + r.Parameters.String()
		}
	} else if r.Any() != nil || r.Value() != nil || !r.LastUpdated.IsZero() {
		x.t.Errorf("%q is not cached, but has %v, %v, of %v", r.Name, r.Any(), r.Value(), r.LastUpdated)
	}
	if f := r.Failure; f != nil {
		text += fmt.Sprintf(", failed %s at %v: %v", f.Version, f.Time.Sub(x.began), f.Err.Err)
		if !f.Err.Constraints.Equal(r.Constraints) {
			x.t.Errorf("error %v is for other constraints than %v", f.Err, r.Constraints)
		}
	}
	return text
}

// serverNamed is what a transcript calls a server.
func serverNamed(uri string) string { return transcriptServers[uri[len(uri)-1]-'0'] }

// statusOf reads a status: OK, or a code and a text.
func statusOf(t *testing.T, text string) error {
	code, reason, _ := strings.Cut(text, " ")
	return status.Error(codeNamed(t, code), reason)
}

// transcriptWatch is a watch of a transcript. One of ear and collection is set.
type transcriptWatch struct {
	ear        *ear
	collection *collectionEar
	stop       func()
	// value is what the watcher got last, if that was a value, and owed are the callbacks that it has
	// not called.
	value any
	owed  []func()
	// err is the last error.
	err *Error
}

func (x *transcript) watch(c LocatorClient, word string) {
	word, keepDone := strings.CutSuffix(word, "!")
	label, name := word, word
	if at := strings.IndexAny(word, "={"); at >= 0 && word[at] == '=' {
		label, name = word[:at], word[at+1:]
	}
	if d := x.direct; d != nil && d.ch.link.Closed() {
		d.connect()
		d.ch.Opened()
		x.opened()
	}
	w, typ := &transcriptWatch{}, x.types.clusters
	if rest, ok := strings.CutPrefix(name, "e:"); ok {
		name, typ = rest, x.types.endpoints
	}
	text := name
	name, constraints, _ := cutBraces(name)
	chosen := choose(constraints...)
	x.locators[locatorText(&discoverypb.ResourceLocator{Name: name, DynamicParameterConstraints: chosen.ToProto()})] = text
	if isCollection(name) || name == wildcard {
		if w.collection = newCollectionEar(x.t); keepDone {
			w.collection.keep = make(chan func(), 1000)
		}
		w.stop = c.WatchCollectionLocator(typ, name, chosen, w.collection)
	} else {
		w.ear = newEar(x.t)
		w.ear.name, w.ear.keepDone = label, keepDone
		w.stop = c.WatchLocator(typ, name, chosen, w.ear)
	}
	x.watches[label] = w
}

// events takes what has happened since it was last called.
func (x *transcript) events() (events []string) {
	if x.direct != nil {
		x.direct.pump()
	}
	for i, s := range x.servers {
		for _, text := range s.events(x) {
			if len(x.servers) > 1 {
				text = transcriptServers[i] + ": " + text
			}
			events = append(events, text)
		}
	}
	for _, label := range slices.Sorted(maps.Keys(x.watches)) {
		for _, text := range x.watches[label].events(len(x.servers) == 1) {
			events = append(events, label+text)
		}
	}
	return append(events, x.disk.events(x)...)
}

// events takes the calls of the watcher. single says that there is one server, whose values stay the
// same while it sends the same bytes.
func (w *transcriptWatch) events(single bool) (events []string) {
	if w.collection != nil {
		for len(w.collection.calls) > 0 {
			events = append(events, " "+<-w.collection.calls)
		}
		return events
	}
	for len(w.ear.calls) > 0 {
		h := <-w.ear.calls
		if w.ear.keepDone {
			w.owed = append(w.owed, h.done)
		}
		if h.err != nil {
			w.err = h.err
		}
		switch {
		case h.ambient:
			events = append(events, " ambient: "+errorText(h.err, single))
		case h.err != nil:
			w.value = nil
			events = append(events, ": "+errorText(h.err, single))
		default:
			c, _ := h.value.(*clusterv3.Cluster)
			if e, ok := h.value.(*enveloped); ok {
				c = new(clusterv3.Cluster)
				xdstest.NoError(w.ear.t, e.resource.UnmarshalTo(c))
				if e.Version != "" {
					c.AltStatName += " v" + e.Version
				}
			}
			if last, _ := w.value.(*clusterv3.Cluster); single && last != c && proto.Equal(last, c) {
				w.ear.fatalf("the value was replaced by an equal one")
			}
			w.value = h.value
			events = append(events, strings.TrimRight(" = "+c.GetAltStatName(), " "))
		}
	}
	return events
}

// errorText is the kind of an error, what the server said unless that is "no", and, if there are
// several servers, which one the error is from.
func errorText(err *Error, single bool) string {
	text := string(err.Kind)
	if said := err.Err.Error(); err.Kind == KindServer && said != "no" {
		text += " " + said
	}
	for i, name := range transcriptServers {
		if !single && err.Server == uri(i) {
			text += " of " + name
		}
	}
	return text
}

// cutBraces returns a name in full, and the list in braces behind it, if there is one.
func cutBraces(text string) (name string, list []string, found bool) {
	name, rest, found := strings.Cut(text, "{")
	if below, ok := strings.CutPrefix(name, "dir/"); ok {
		name = collectionDir + below
	}
	return name, strings.FieldsFunc(strings.TrimSuffix(rest, "}"), func(r rune) bool { return r == ',' }), found
}
