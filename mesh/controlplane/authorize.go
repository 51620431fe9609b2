package controlplane

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsname"
)

// mayHaveName returns the error of Options.Access or Options.Authorize for a name.
func (s *stream) mayHaveName(typeURL, name string) error {
	if err := s.grant.Check(name); err != nil || s.opts.Authorize == nil {
		return err
	}
	return s.opts.Authorize(s.ctx, s.node, typeURL, name)
}

// authorize asks Options.Access and Options.Authorize for the topics that a request subscribes to, and marks those that
// the client may not have. A wildcard ends the stream: TP3 has no errors for it, and without an answer
// the client would wait for ever.
func (s *stream) authorize(sub *subscription, asked map[topic]locator) error {
	if s.opts.Authorize == nil && s.grant.Everything() {
		return nil
	}
	for tp, l := range asked {
		if l.refused != nil || s.mayHave(sub, tp) {
			continue
		}
		err := s.mayHaveName(sub.typeURL, xdsname.Canonical(l.name))
		switch {
		case err == nil:
		case sub.isWildcard(tp):
			return statusOf(err).Err()
		default:
			l.refused = s.denial(&l, statusOf(err))
			asked[tp] = l
		}
	}
	return nil
}

// mayHave reports whether the client has a subscription already that was allowed.
func (s *stream) mayHave(sub *subscription, tp topic) bool {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	a := sub.askOf(tp)
	return a != nil && a.refused == nil
}

// denial is the refusal of a locator that the client may not have. Clients that get the same
// error share an ask.
func (s *stream) denial(l *locator, st *status.Status) *refusal {
	e := errorEntry(l.name, st)
	return &refusal{sent: l.constraints.ToProto(), wire: "denied " + e.err.version + l.constraints.Key(), denied: true, entry: e}
}

// refreshing is for how many streams at a time RefreshAuthorization asks.
const refreshing = 16

// RefreshAuthorization calls [Options.Authorize] again for all that clients have subscribed to: for 16 streams at a time,
// and for each of them one name after the other. A stream for which a decision has changed ends with UNAVAILABLE: the client
// opens another, and subscribes again. RefreshAuthorization returns when all decisions are known.
func (s *Server) RefreshAuthorization() {
	if s.opts.Authorize == nil {
		return
	}
	room := make(chan struct{}, refreshing)
	var asking sync.WaitGroup
	for _, st := range s.present() {
		room <- struct{}{}
		asking.Go(func() {
			st.reauthorize()
			<-room
		})
	}
	asking.Wait()
}

// errReauthorized ends a stream. What the client has stays in use until the answers on its next stream take it away.
var errReauthorized = status.Error(codes.Unavailable, "what this client may have has changed; open another stream")

// decided is what Options.Authorize has decided about.
type decided struct {
	typeURL, name string
	denied        bool
}

// reauthorize ends the stream if a decision has changed.
func (s *stream) reauthorize() {
	s.changing.Lock()
	defer s.changing.Unlock()
	if _, greeted := s.greeting(); !greeted {
		return // it has not subscribed to anything
	}
	for _, d := range s.decided() {
		if (s.mayHaveName(d.typeURL, d.name) != nil) != d.denied {
			s.fail(errReauthorized)
			return
		}
	}
}

// decided returns all that the client has subscribed to. The caller holds changing.
func (s *stream) decided() (list []decided) {
	s.mu.Lock()
	subs := slices.Collect(maps.Values(s.subs))
	s.mu.Unlock()
	s.usage.peer.enter()
	defer s.usage.peer.leave()
	s.yields = true
	for _, sub := range subs {
		sub.eachAsk(func(a *ask) {
			// Invalid locators, and what contradicts the client's node, were not asked about.
			if a.refused == nil || a.refused.denied && !a.refused.contradicts {
				list = append(list, decided{sub.typeURL, xdsname.Canonical(sub.locator(a).name), a.refused != nil})
			}
		})
	}
	return list
}

// absenceText returns the error of a resource that does not exist, as Options.Absence puts it, or nil.
func (s *stream) absenceText(typeURL, name string) *resourceError {
	if s.opts.Absence == nil {
		return nil
	}
	allowed := func(name string) bool { return s.mayHaveName(typeURL, xdsname.Canonical(name)) == nil }
	text := s.opts.Absence(typeURL, name, allowed)
	if text == "" {
		return nil
	}
	return &resourceError{name: name, detail: status.New(codes.NotFound, strings.ToValidUTF8(text, "\uFFFD")).Proto()}
}
