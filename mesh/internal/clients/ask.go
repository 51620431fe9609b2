package clients

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
)

const (
	// maxAnswer bounds the answer of a replica, in bytes.
	maxAnswer = 256 << 20
	// maxAsked bounds the replicas that are asked at a time.
	maxAsked = 32
)

// Replica is a replica to ask.
type Replica struct {
	// Admin is the address of its admin pages, "host:port"; empty if it has none.
	Admin string
	// ID is that of the replica, if it is known: another process at the address does not count.
	ID string
	// Fault says why it cannot be asked, nil if it can.
	Fault error
}

// Replies is what several replicas say beside their clients.
type Replies struct {
	// Replicas counts those that were asked.
	Replicas int `json:"replicas"`
	// Configurations are what the replicas say about their documents, by the addresses that they were asked at. Relays
	// are not in it.
	Configurations map[string]planestate.State `json:"configurations,omitempty"`
	// Upstreams are what relays whose control plane is unreachable say of that, by the addresses that they were asked at.
	Upstreams map[string]string `json:"upstreams,omitempty"`
	// Unreachable are the replicas that did not answer.
	Unreachable []Unreachable `json:"unreachable,omitempty"`
}

// Fleet is the clients of several replicas.
type Fleet struct {
	Replies
	Clients []Client `json:"clients"`
	// Resources says that Lines has the versions of resources.
	Resources bool `json:"-"`
}

// Top is the clients of several replicas at a glance.
type Top struct {
	Replies
	*Overview
}

// Unreachable is a replica that did not answer, and why.
type Unreachable struct {
	Replica string `json:"replica"`
	Error   string `json:"error"`
}

// Ask asks every replica for its clients, or only for those that refuse something. timeout is for one of them.
func Ask(ctx context.Context, replicas []Replica, nacks bool, timeout time.Duration) *Fleet {
	query := ""
	if nacks {
		query = onlyNACKs
	}
	replies, answers := askAll(ctx, replicas, query, timeout)
	fleet := &Fleet{Replies: replies, Clients: []Client{}}
	for i, r := range replicas {
		for _, c := range answers[i].Clients {
			c.Replica, c.asked = r.Admin, answers[i].Time
			fleet.Clients = append(fleet.Clients, c)
		}
	}
	return fleet
}

// AskTop asks every replica for an overview of its clients. timeout is for one of them.
func AskTop(ctx context.Context, replicas []Replica, timeout time.Duration) *Top {
	sums := newSums()
	replies, answers := askAll(ctx, replicas, atAGlance, timeout)
	for i := range answers {
		if answers[i].Overview != nil {
			sums.merge(answers[i].Overview)
		}
	}
	return &Top{replies, sums.overview()}
}

// askAll asks every replica. Answers that there are none of are empty.
func askAll(ctx context.Context, replicas []Replica, query string, timeout time.Duration) (Replies, []Answer) {
	answers, errs := make([]Answer, len(replicas)), make([]error, len(replicas))
	var asking sync.WaitGroup
	turn := make(chan struct{}, maxAsked)
	for i, r := range replicas {
		asking.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			answers[i], errs[i] = ask(ctx, r, query, timeout)
		})
	}
	asking.Wait()
	replies := Replies{Replicas: len(replicas), Configurations: make(map[string]planestate.State), Upstreams: make(map[string]string)}
	known := make(map[string]string) // where a replica was asked, by its ID
	for i, r := range replicas {
		id := answers[i].Replica
		if first := known[id]; first != "" {
			answers[i], errs[i] = Answer{}, fmt.Errorf("it is the same replica as %s: name one of the addresses", first)
		} else if id != "" {
			known[id] = r.Admin
		}
		if errs[i] != nil {
			replies.Unreachable = append(replies.Unreachable, Unreachable{cmp.Or(r.Admin, r.ID), errs[i].Error()})
			continue
		}
		if state := answers[i].Configuration; state != nil {
			replies.Configurations[r.Admin] = *state
		}
		if text := answers[i].Upstream; text != "" {
			replies.Upstreams[r.Admin] = text
		}
	}
	return replies, answers
}

// Err returns an error that names the replicas that did not answer, or nil.
func (f *Replies) Err() error {
	if len(f.Unreachable) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %s did not answer:", len(f.Unreachable), faults.Count(f.Replicas, "replica"))
	for _, u := range f.Unreachable {
		b.WriteString("\n\t" + faults.Printable(u.Replica+": "+u.Error, ""))
	}
	return exit.With(exit.Unreachable, errors.New(b.String()))
}

func ask(ctx context.Context, replica Replica, query string, timeout time.Duration) (Answer, error) {
	if replica.Fault != nil {
		return Answer{}, replica.Fault
	}
	if replica.Admin == "" {
		return Answer{}, errors.New("it runs without --admin")
	}
	if _, _, err := net.SplitHostPort(replica.Admin); err != nil {
		return Answer{}, fmt.Errorf("want HOST:PORT: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// The address may be from a store, with any text: it is a host, and no other part of a URL.
	page := &url.URL{Scheme: "http", Host: replica.Admin, Path: "/clients", RawQuery: query}
	r := (&http.Request{Method: http.MethodGet, URL: page, Header: http.Header{}}).WithContext(ctx)
	// No site's script can send this Host, so that the replica accepts it under any name.
	r.Host = "localhost"
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		if ctx.Err() != nil {
			return Answer{}, unanswered(timeout, err)
		}
		return Answer{}, fmt.Errorf("%w; %s", err, whose)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
		return Answer{}, fmt.Errorf("%s: %s; %s", resp.Status, faults.Printable(strings.TrimSpace(string(text)), ""), whose)
	}
	var answer Answer
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer); err != nil {
		if ctx.Err() != nil {
			return Answer{}, unanswered(timeout, err)
		}
		return Answer{}, fmt.Errorf("unexpected answer: %w; %s", err, whose)
	}
	if replica.ID != "" && answer.Replica != replica.ID {
		return Answer{}, fmt.Errorf("expected replica %s there, found %q; give each replica an --admin address of its own that other hosts reach", replica.ID, answer.Replica)
	}
	return answer, nil
}

// whose is what to look at if something else answers.
const whose = "is it the address that \"dynxds serve --admin\" logs?"

// unanswered is the error of a replica whose time is up.
func unanswered(timeout time.Duration, err error) error {
	return fmt.Errorf("no complete answer after %s: %w; is it the address of --admin? --timeout allows more time", timeout, err)
}
