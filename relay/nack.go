package relay

import (
	"errors"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient"
)

// A relay rejects nothing itself but bytes that are no message. What one client cannot use others may, so the control plane is told
// only what all who are subscribed to it reject. A NACK is for a response, which is the relay's own:
// the resources that the client means are those that it names in the text, as gRPC and Envoy do.

// rejected is the controlplane's Options.OnNACK.
func (r *Relay) rejected(n controlplane.Rejection) {
	if of := r.opts.Server.OnNACK; of != nil {
		of(n)
	}
	r.mu.Lock()
	r.rejections++
	g := r.byStore[n.Store]
	clients := 0
	if g != nil {
		clients = g.clients
	}
	r.mu.Unlock()
	version, err := strconv.ParseUint(n.NACK.Version, 10, 64)
	if g == nil || err != nil {
		return
	}
	text := n.NACK.Err.Message()
	for _, raw := range g.rejectedByAll(n.Stream, n.TypeURL, text, version, 2*clients) {
		raw.Reject(errors.New("rejected by all clients of the relay: " + text))
	}
}

// maxRejectionText bounds what is read of the text of a NACK, in bytes.
const maxRejectionText = 4 << 10

// rejectedByAll notes that a stream rejects the resources that a text names, and returns those that
// all have rejected now. version is that of the store in the response: what was passed on after it is
// not meant. At most this many streams are remembered for a resource, as those that leave are too.
func (g *group) rejectedByAll(stream uint64, typeURL, text string, version uint64, most int) (all []*xdsclient.Raw) {
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
			if s.rejectedBy == nil || len(s.rejectedBy) > most {
				s.rejectedBy = make(map[uint64]struct{})
			}
			if _, known := s.rejectedBy[stream]; known {
				continue
			}
			s.rejectedBy[stream] = struct{}{}
			if s.demand.SubscribedOnlyBy(s.rejectedBy) {
				all = append(all, s.raw)
			}
		}
	}
	return all
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
	for _, word := range strings.Fields(text) {
		found[word] = struct{}{}
		found[strings.Trim(word, `"'`+"`:,;.()[]{}")] = struct{}{}
	}
	return found
}
