package xdsclient

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Here are the steps of transcripts.

var transcriptServers = []string{"high", "low", "last"}

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
	case "hold":
		s.hold()
	case "connect":
		s.open()
	case "wait":
		times, each, several := strings.Cut(rest, "*")
		if !several {
			times, each = "1", rest
		}
		n, err := strconv.Atoi(times)
		xdstest.NoError(x.t, err)
		d, err := time.ParseDuration(each)
		xdstest.NoError(x.t, err)
		for range n {
			pass(d)
			x.told = append(x.told, x.disk.events(x)...)
		}
	case "works":
		d, err := time.ParseDuration(rest)
		xdstest.NoError(x.t, err)
		x.decoder.set(func() { x.decoder.takes = d })
	case "spoil":
		x.decoder.set(func() { x.decoder.spoiled = true })
	case "members":
		limit, err := strconv.Atoi(rest)
		xdstest.NoError(x.t, err)
		x.c.maxMembers = limit
	case "stall":
		left, err := strconv.Atoi(rest)
		xdstest.NoError(x.t, err)
		s.stall(left)
	case "flow":
		s.flow()
	case "limit":
		limit, err := strconv.Atoi(rest)
		xdstest.NoError(x.t, err)
		for _, ch := range x.c.channels {
			for _, ts := range ch.types {
				ts.limit = limit
			}
		}
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
	case "text", "code", "transient", "status":
		err := x.watches[words[0]].err
		if err == nil {
			x.t.Fatalf("%s has had no error", words[0])
		}
		st, sent := err.Status()
		status := fmt.Sprintf("%v %q with %d details, sent: %v", st.Code(), st.Message(), len(st.Details()), sent)
		return []string{map[string]string{"text": err.Error(), "code": err.Code.String(), "transient": fmt.Sprint(err.Transient), "status": status}[verb]}
	case "began":
		return []string{strings.Trim(fmt.Sprint(s.attempts()), "[]")}
	case "nack":
		if x.nack != "" {
			told = []string{x.nack}
		}
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
	case "held":
		x.c.mu.Lock()
		told = []string{fmt.Sprint(x.c.diskWriter.left != nil)}
		x.c.mu.Unlock()
	case "lasts":
		told = x.decoder.take()
	case "log":
		told = x.tellLog()
	case "changes":
		told = x.tellChanges()
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
		if r.FromDisk {
			text += " from disk"
		}
		if r.Value() == nil && !r.collection {
			x.t.Errorf("%q has no value", r.Name)
		}
		if !r.Parameters.IsZero() {
			text += " " + r.Parameters.String()
		}
	} else if r.Any() != nil || r.Value() != nil || !r.LastUpdated.IsZero() {
		x.t.Errorf("%q is not cached, but has %v, %v, of %v", r.Name, r.Any(), r.Value(), r.LastUpdated)
	}
	for _, i := range r.Ignored() {
		if severity, err := i.Severity.MarshalText(); err != nil || len(severity) == 0 {
			x.t.Errorf("%q: severity %q, %v", i, severity, err)
		}
		text += " without " + i.String()
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
func statusOf(t testing.TB, text string) error {
	code, reason, _ := strings.Cut(text, " ")
	return status.Error(codeNamed(t, code), reason)
}

func (x *transcript) watch(c LocatorClient, word string) {
	word, keepDone := strings.CutSuffix(word, "!")
	label, name := word, word
	if at := strings.IndexAny(word, "={"); at >= 0 && word[at] == '=' {
		label, name = word[:at], word[at+1:]
	}
	if d := x.direct; d != nil && d.ch.link.Closed() {
		d.connect()
		d.ch.opened()
		x.opened()
	}
	w, typ := &transcriptWatch{}, x.types.clusters
	if rest, ok := strings.CutPrefix(name, "e:"); ok {
		name, typ = rest, x.types.endpoints
	}
	name, one := strings.CutPrefix(name, "one:")
	name, all := strings.CutPrefix(name, "all:")
	text := name
	name, constraints, _ := cutBraces(name)
	chosen := choose(constraints...)
	x.locators[locatorText(&discoverypb.ResourceLocator{Name: name, DynamicParameterConstraints: chosen.ToProto()})] = text
	if all || isCollection(name) && !one {
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

// cutBraces returns a name in full, and the list in braces behind it, if there is one.
func cutBraces(text string) (name string, list []string, found bool) {
	name, rest, found := strings.Cut(text, "{")
	if below, ok := strings.CutPrefix(name, "dir/"); ok {
		name = collectionDir + below
	}
	return name, strings.FieldsFunc(strings.TrimSuffix(rest, "}"), func(r rune) bool { return r == ',' }), found
}
