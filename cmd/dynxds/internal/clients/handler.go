package clients

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/dynxds/dynxds/controlplane"
)

// Answer is what one replica says.
type Answer struct {
	// Replica is the ID of the replica.
	Replica string `json:"replica"`
	// Time is that of the replica's clock.
	Time    time.Time `json:"time"`
	Clients []Client  `json:"clients"`
}

// onlyNACKs is the parameter of the query that leaves out what no client refuses.
const onlyNACKs = "nacks"

// Handler serves the Answer of a replica about its streams, those of controlplane.Server.Clients or
// relay.Relay.Clients. As these cost work for each client, few requests are served at a time.
func Handler(id string, streams func() []controlplane.ClientStatus) http.Handler {
	busy := make(chan struct{}, 2)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "others are asking for the clients: try again", http.StatusServiceUnavailable)
			return
		}
		answer := Answer{Replica: id, Time: time.Now(), Clients: []Client{}}
		all := streams()
		for i := range all {
			c := viewOf(&all[i])
			if r.URL.Query().Has(onlyNACKs) {
				if !c.refuses() {
					continue
				}
				c.Types = slices.DeleteFunc(c.Types, func(t Type) bool { return !t.Refuses() })
			}
			answer.Clients = append(answer.Clients, c)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // an error is that of the connection
	})
}
