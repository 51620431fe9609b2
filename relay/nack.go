package relay

import (
	"errors"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// A relay rejects nothing itself but bytes that are no message. What one client cannot use others may,
// so it sends a NACK only for what all subscribers reject. A NACK is for a response,
// which is the relay's own: the resources that the client means are those that it names in the text, as
// gRPC and Envoy do.

// rejections are the NACKs of the resource of a subscription. Guarded by group.mu.
type rejections struct {
	// by are the streams that rejected it, and text is that of the last NACK.
	by   map[uint64]struct{}
	text string
	// rejected is set while the resource is rejected upstream.
	rejected bool
}

// rejected is the controlplane's Options.OnNACK.
func (r *Relay) rejected(n controlplane.Rejection) {
	if of := r.opts.Server.OnNACK; of != nil {
		defer of(n)
	}
	r.mu.Lock()
	r.rejections++
	g := r.byStore[n.Store]
	r.mu.Unlock()
	version, err := strconv.ParseUint(n.NACK.Version, 10, 64)
	if g == nil || err != nil {
		return
	}
	g.noteRejection(n.Stream, n.TypeURL, n.NACK.Err.Message(), version)
}

// maxRejectionText bounds what is read of the text of a NACK, in bytes.
const maxRejectionText = 4 << 10

// noteRejection notes that a stream rejects the resources that a text names. version is that of the store
// in the response: what was passed on after it is not meant.
func (g *group) noteRejection(stream uint64, typeURL, text string, version uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range namesIn(text[:min(len(text), maxRejectionText)]) {
		for _, s := range g.variants[resourceName{typeURL, xdsname.Canonical(name)}] {
			if s.raw == nil || s.demand == nil || s.key.stream != 0 && s.key.stream != stream {
				continue
			}
			if version < s.since || !repeats(s.raw, s.passed) {
				continue
			}
			if s.by == nil {
				s.by = make(map[uint64]struct{})
			}
			s.by[stream], s.text = struct{}{}, text
			s.passRejection()
		}
	}
}

// passRejection rejects the resource upstream if all subscribers have rejected it, also once the others
// have left; and takes that back if there is one that has not. The caller holds g.mu.
func (s *subscription) passRejection() {
	if s.raw == nil {
		return
	}
	d := s.demand
	all := d.SubscribedOnlyBy(s.by, func() {
		s.group.mu.Lock()
		defer s.group.mu.Unlock()
		if s.demand == d && s.by != nil && !s.group.closed {
			s.passRejection()
		}
	})
	switch {
	case all == s.rejected:
	case all:
		s.raw.Reject(errors.New("rejected by all clients of the relay: " + s.text))
	default:
		s.raw.Reject(nil)
	}
	s.rejected = all
}

// namesIn returns what may be names in the text of a NACK: what is in quotation marks, and words.
func namesIn(text string) map[string]struct{} {
	found := make(map[string]struct{})
	for _, mark := range []string{`"`, "'"} {
		parts := strings.Split(text, mark)
		for i := 1; i < len(parts); i += 2 {
			found[parts[i]] = struct{}{}
		}
	}
	for _, field := range strings.Fields(text) {
		found[field] = struct{}{}
		found[strings.Trim(field, `"'`+"`:,;.()[]{}")] = struct{}{}
	}
	return found
}
