package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
)

const (
	// patience bounds the wait for a replica.
	patience = 10 * time.Second
	// maxAnswer bounds the answer of a replica, in bytes.
	maxAnswer = 256 << 20
	// maxAsked bounds the replicas that are asked at a time.
	maxAsked = 32
)

// Fleet is what several replicas say.
type Fleet struct {
	// Replicas counts those that were asked.
	Replicas int      `json:"replicas"`
	Clients  []Client `json:"clients"`
	// Unreachable are the replicas that did not answer.
	Unreachable []Unreachable `json:"unreachable,omitempty"`
}

// Unreachable is a replica that did not answer, and why.
type Unreachable struct {
	Replica string `json:"replica"`
	Error   string `json:"error"`
}

// Ask asks every replica at its admin address, "host:port", for its clients, or only for those that refuse
// something.
func Ask(ctx context.Context, addresses []string, nacks bool) Fleet {
	answers, errs := make([]Answer, len(addresses)), make([]error, len(addresses))
	var asking sync.WaitGroup
	turn := make(chan struct{}, maxAsked)
	for i, address := range addresses {
		asking.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			answers[i], errs[i] = ask(ctx, address, nacks)
		})
	}
	asking.Wait()
	fleet := Fleet{Replicas: len(addresses), Clients: []Client{}}
	for i, address := range addresses {
		if errs[i] != nil {
			fleet.Unreachable = append(fleet.Unreachable, Unreachable{address, errs[i].Error()})
			continue
		}
		for _, c := range answers[i].Clients {
			c.Replica, c.asked = address, answers[i].Time
			fleet.Clients = append(fleet.Clients, c)
		}
	}
	return fleet
}

// Err returns an error that names the replicas that did not answer, or nil.
func (f *Fleet) Err() error {
	if len(f.Unreachable) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d replicas did not answer:", len(f.Unreachable), f.Replicas)
	for _, u := range f.Unreachable {
		fmt.Fprintf(&b, "\n\t%s: %s", u.Replica, u.Error)
	}
	b.WriteString("\nIs it the address that \"dynxds serve --admin\" logs?")
	return errors.New(b.String())
}

func ask(ctx context.Context, address string, nacks bool) (Answer, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return Answer{}, fmt.Errorf("want HOST:PORT: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	query := ""
	if nacks {
		query = "?" + onlyNACKs
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/clients"+query, nil)
	if err != nil {
		return Answer{}, err
	}
	// No site's script can send this: the replica need not know the name that it is asked by.
	r.Host = "localhost"
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
		return Answer{}, fmt.Errorf("%s: %s", resp.Status, faults.Printable(strings.TrimSpace(string(text)), ""))
	}
	var answer Answer
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer); err != nil {
		return Answer{}, fmt.Errorf("not the answer of a replica: %w", err)
	}
	return answer, nil
}
