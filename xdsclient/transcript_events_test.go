package xdsclient

import (
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// Here is what follows from the steps of transcripts.

// eventsOf splits what follows from a step. Texts stay whole.
func eventsOf(step, follows string) []string {
	if verb, _, _ := strings.Cut(step, " "); slices.Contains([]string{"text", "nack", "status", "log"}, verb) {
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
				c.AltStatName += e.text()
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

// text writes what an envelope has: a version, a TTL, whether it may be cached, and its aliases.
func (e *enveloped) text() (text string) {
	if e.Version != "" {
		text = " v" + e.Version
	}
	if e.TTL > 0 {
		text += " for " + e.TTL.String()
	}
	if e.DoNotCache {
		text += " uncached"
	}
	if len(e.Aliases) > 0 {
		text += " of " + e.Name + "|" + strings.Join(e.Aliases, "|")
	}
	return text
}
