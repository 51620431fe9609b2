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
	// Configuration is what the replica says about its documents; nil for a relay, which has none.
	Configuration *planestate.State `json:"configuration,omitempty"`
	// Upstream says that the control plane of a relay is unreachable, and since when; empty if it is not.
	Upstream string `json:"upstream,omitempty"`
}

// onlyNACKs is the parameter of the query that leaves out what no client refuses.
const onlyNACKs = "nacks"

const (
	// fresh is how long an answer is given to others that ask.
	fresh = time.Second
	// readTime bounds how long an asker takes to read an answer.
	readTime = 30 * time.Second
)

// Handler serves the Answer of a replica about its streams, those of controlplane.Server.Overview or
// relay.Relay.Overview. One that was made in the last second is given to all that ask, so that the cost does not
// depend on their number; and nobody waits for others to read theirs. configuration is nil for a relay, and upstream, which returns
// Answer.Upstream, for what is none.
func Handler(id string, streams func() []controlplane.ClientStatus, configuration func() planestate.State, upstream func() string) http.Handler {
	var all, nacks answers
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of := &all
		if r.URL.Query().Has(onlyNACKs) {
			of = &nacks
		}
		content, err := of.get(func() ([]byte, error) {
			a := answerOf(id, streams(), of == &nacks)
			if configuration != nil {
				state := configuration()
				a.Configuration = &state
			}
			if upstream != nil {
				a.Upstream = upstream()
			}
			content, err := json.Marshal(a)
			return append(content, '\n'), err
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		// Not supported by all servers, which then have timeouts of their own.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readTime))
		_, _ = w.Write(content) // an error is that of the connection
	})
}

// answers has the last answer.
type answers struct {
	mu      sync.Mutex
	content []byte
	made    time.Time
}

// get returns the last answer if it is fresh, or what make makes. Others wait meanwhile, and share it.
func (a *answers) get(make func() ([]byte, error)) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.content != nil && time.Since(a.made) < fresh {
		return a.content, nil
	}
	content, err := make()
	if err != nil {
		return nil, err
	}
	a.content, a.made = content, time.Now()
	return content, nil
}

func answerOf(id string, all []controlplane.ClientStatus, onlyNACKs bool) Answer {
	answer := Answer{Replica: id, Time: time.Now(), Clients: make([]Client, 0, len(all))}
	for i := range all {
		c := ViewOf(&all[i])
		if onlyNACKs {
			if !c.refuses() {
				continue
			}
			c.Types = slices.DeleteFunc(c.Types, func(t Type) bool { return !t.Refuses() })
		}
		answer.Clients = append(answer.Clients, c)
	}
	return answer
}
