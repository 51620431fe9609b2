package clients

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
)

// Answer is what one replica says.
type Answer struct {
	// Replica is the ID of the replica.
	Replica string `json:"replica"`
	// Time is that of the replica's clock.
	Time    time.Time `json:"time"`
	Clients []Client  `json:"clients"`
	// Overview is in place of Clients, if that was asked for.
	Overview *Overview `json:"overview,omitempty"`
	// Configuration is what the replica says about its documents; nil for a relay, which has none.
	Configuration *planestate.State `json:"configuration,omitempty"`
	// Upstream says that the control plane of a relay is unreachable, and since when; empty if it is not.
	Upstream string `json:"upstream,omitempty"`
}

// Parameters of the query: for what clients refuse alone, and for an Overview. Without one all clients are asked for.
const (
	onlyNACKs = "nacks"
	atAGlance = "overview"
)

const (
	// fresh is how long an answer is given to others that ask.
	fresh = time.Second
	// readTime bounds how long an asker takes to read an answer.
	readTime = 30 * time.Second
)

// Source is what a replica answers about.
type Source struct {
	// ID is that of the replica.
	ID string
	// Streams returns the clients, as controlplane.Server.Overview and relay.Relay.Overview do.
	Streams func() []controlplane.ClientStatus
	// Configuration is nil for a relay.
	Configuration func() planestate.State
	// Upstream returns Answer.Upstream; nil for what is no relay.
	Upstream func() string
	// Loads returns what clients have reported lately; nil if they report to another one.
	Loads func() []controlplane.RecentLoad
}

// Handler serves the Answer of a replica. One that was made in the last second is given to all that ask, so that the cost does not
// depend on their number; and nobody waits for others to read theirs.
func Handler(from Source) http.Handler {
	last := map[string]*kept{"": {}, onlyNACKs: {}, atAGlance: {}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, kind := r.URL.Query(), ""
		switch {
		case query.Has(atAGlance):
			kind = atAGlance
		case query.Has(onlyNACKs):
			kind = onlyNACKs
		}
		content := last[kind].answer(&from, kind)
		w.Header().Set("Content-Type", "application/json")
		// Not supported by all servers, which then have timeouts of their own.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readTime))
		_, _ = w.Write(content) // an error is that of the connection
	})
}

// kept is the last answer to a kind of query.
type kept struct {
	mu      sync.Mutex
	content []byte
	made    time.Time
}

// answer returns the last answer if it is fresh, or a new one. Others wait meanwhile, and share it.
func (k *kept) answer(from *Source, kind string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.content == nil || time.Since(k.made) >= fresh {
		content, _ := json.Marshal(from.answer(kind)) // of texts, numbers and times, which cannot fail
		k.content, k.made = append(content, '\n'), time.Now()
	}
	return k.content
}

// answer returns the answer to a query.
func (s *Source) answer(kind string) *Answer {
	a := &Answer{Replica: s.ID, Time: time.Now(), Clients: []Client{}}
	streams := s.Streams()
	if kind == atAGlance {
		var loads []controlplane.RecentLoad
		if s.Loads != nil {
			loads = s.Loads()
		}
		a.Overview = OverviewOf(streams, loads)
	} else {
		for i := range streams {
			if kind == onlyNACKs && StandingOf(&streams[i], a.Time) != Refusing {
				continue
			}
			c := ViewOf(&streams[i])
			c.Types = slices.DeleteFunc(c.Types, func(t Type) bool { return kind == onlyNACKs && !t.Refuses() })
			a.Clients = append(a.Clients, c)
		}
	}
	if s.Configuration != nil {
		state := s.Configuration()
		a.Configuration = &state
	}
	if s.Upstream != nil {
		a.Upstream = s.Upstream()
	}
	return a
}
