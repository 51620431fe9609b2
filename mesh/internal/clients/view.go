// Package clients shows operators what the clients of a control plane think of it. A replica serves the
// state of its streams as JSON (Handler), or an Overview of them; Ask and AskTop fetch these of several replicas.
//
// What clients say, such as their errors, is shortened where it is served, and has no control of the
// terminal where it is printed.
package clients

import (
	"fmt"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// Bounds of what is shown of a client: of its texts, in bytes, and its lists.
const (
	maxName      = 256
	maxError     = 1024
	maxTypes     = 50
	maxErrors    = 20
	maxResources = 20
	// maxSubscribed is fewer than controlplane.Server.Overview has.
	maxSubscribed = 10
)

// Client is one stream of a client.
type Client struct {
	// Replica is the address that the replica was asked at.
	Replica string `json:"replica,omitempty"`
	// ID is that of the stream at the replica.
	ID      uint64    `json:"id"`
	Node    string    `json:"node"`
	Cluster string    `json:"cluster,omitempty"`
	Agent   string    `json:"agent,omitempty"` // with its version
	Address string    `json:"address,omitempty"`
	Since   time.Time `json:"since"`
	// Protocol is "SotW" or "delta".
	Protocol string `json:"protocol"`
	// Standing is that of the worst of its types: "in sync", "behind", "late" or "refusing".
	Standing string `json:"standing"`
	// TP2 says that the client subscribes by locators, with constraints.
	TP2   bool   `json:"tp2"`
	Types []Type `json:"types"`
	// MoreTypes counts those that are left out.
	MoreTypes int `json:"more_types,omitempty"`

	// asked is when the replica was asked, by its own clock.
	asked time.Time
}

// States of a Type.
const (
	StateNone   = "nothing sent"
	StateACK    = "ACK"
	StateNACK   = "NACK"
	StateBehind = "behind" // sent, but not answered
)

// Type is one type of resources on a stream.
type Type struct {
	Type string `json:"type"`
	// Names is how many names the client subscribes to.
	Names    int  `json:"names"`
	Wildcard bool `json:"wildcard,omitempty"`
	// Subscribed are the first of the names.
	Subscribed []string `json:"subscribed,omitempty"`
	// Resources are those that the client was last sent, some of many, with the versions that "dynxds status" shows of them.
	Resources []Resource `json:"resources,omitempty"`
	// State is one of the constants.
	State string `json:"state"`
	// Late says that the client is Late with its answer.
	Late bool `json:"late,omitempty"`
	// ACKed is the version of the last response that the client accepted, Sent that of the last
	// one, and SentAt its time.
	ACKed  string     `json:"acked,omitempty"`
	Sent   string     `json:"sent,omitempty"`
	SentAt *time.Time `json:"sent_at,omitempty"`
	// Refused is the version of the last response that the client rejected, and Error what it
	// said, until it accepts a later one.
	Refused string `json:"refused,omitempty"`
	Error   string `json:"error,omitempty"`
	// Errors are those that the client was sent in place of resources (xRFC TP3).
	Errors     []ResourceError `json:"resource_errors,omitempty"`
	MoreErrors int             `json:"more_resource_errors,omitempty"`
}

// Resource is a resource that a client was sent.
type Resource struct {
	// Name is as in CSDS: with the constraints, if the client has sent any.
	Name    string `json:"name"`
	Version string `json:"version"`
}

// ResourceError is an error in place of a resource.
type ResourceError struct {
	Name        string `json:"name"`
	Constraints string `json:"constraints,omitempty"`
	Error       string `json:"error"`
}

// Refuses reports whether the client has accepted nothing of the type since it rejected something.
func (t *Type) Refuses() bool { return t.Refused != "" }

// ViewOf returns the client of a stream, with short texts and lists.
func ViewOf(s *controlplane.ClientStatus) Client {
	n := s.Node
	c := Client{
		ID: s.ID, Node: faults.Shorten(n.GetId(), maxName), Cluster: faults.Shorten(n.GetCluster(), maxName), Agent: agentOf(s), Since: s.Since, Protocol: s.Protocol.String(),
		Standing: StandingOf(s, time.Now()).String(), MoreTypes: max(0, len(s.Types)-maxTypes), Types: []Type{},
	}
	if s.Peer != nil {
		c.Address = faults.Shorten(s.Peer.String(), maxName)
	}
	for i := range s.Types {
		c.TP2 = c.TP2 || len(s.Types[i].Locators) > 0
	}
	for i := range s.Types[:min(len(s.Types), maxTypes)] {
		c.Types = append(c.Types, typeOf(&s.Types[i]))
	}
	return c
}

var states = map[controlplane.Reply]string{
	controlplane.ReplyNone: StateNone, controlplane.ReplyAwaited: StateBehind,
	controlplane.ReplyACK: StateACK, controlplane.ReplyNACK: StateNACK,
}

func typeOf(s *controlplane.TypeStatus) Type {
	t := Type{
		Type: faults.Shorten(typeurl.ShortName(s.TypeURL), maxName), Names: max(s.NameCount, len(s.Names)), Wildcard: s.Wildcard,
		State: states[s.Reply], Late: standingOf(s, time.Now()) == Late, ACKed: s.ACKedVersion, Sent: s.SentVersion, MoreErrors: max(s.ErrorCount, len(s.Errors)) - min(len(s.Errors), maxErrors),
	}
	if !s.SentAt.IsZero() {
		t.SentAt = &s.SentAt
	}
	if s.Refusing {
		t.Refused, t.Error = s.NACK.Version, faults.Shorten(s.NACK.Err.Message(), maxError)
	}
	for _, name := range s.Names[:min(len(s.Names), maxSubscribed)] {
		t.Subscribed = append(t.Subscribed, faults.Shorten(name, maxName))
	}
	for _, r := range s.Sent[:min(len(s.Sent), maxResources)] {
		name := r.Name
		if !r.Constraints.IsZero() {
			name += " " + r.Constraints.String()
		}
		t.Resources = append(t.Resources, Resource{faults.Shorten(name, maxName), faults.Shorten(r.Version, maxName)})
	}
	for _, e := range s.Errors[:min(len(s.Errors), maxErrors)] {
		shown := ResourceError{Name: faults.Shorten(e.Name, maxName), Error: faults.Shorten(e.Err.Code().String()+": "+e.Err.Message(), maxError)}
		if !e.Constraints.IsZero() {
			shown.Constraints = faults.Shorten(e.Constraints.String(), maxName)
		}
		t.Errors = append(t.Errors, shown)
	}
	return t
}

// Standing says how a client stands with what it was sent. The constants go from good to bad.
type Standing int

// The standings of a client. One that is late has not answered for ten seconds.
const (
	InSync Standing = iota
	Behind
	Late
	Refusing
)

// lateAfter is how long an answer of a client may take.
const lateAfter = 10 * time.Second

var standingNames = [...]string{"in sync", "behind", "late", "refusing"}

// String returns the standing in words.
func (s Standing) String() string { return standingNames[s] }

// StandingOf returns the standing of a client, which is the worst of its types.
func StandingOf(c *controlplane.ClientStatus, now time.Time) (worst Standing) {
	for i := range c.Types {
		worst = max(worst, standingOf(&c.Types[i], now))
	}
	return worst
}

func standingOf(t *controlplane.TypeStatus, now time.Time) Standing {
	switch {
	case t.Refusing:
		return Refusing
	case t.Reply != controlplane.ReplyAwaited:
		return InSync
	case now.Sub(t.SilentSince) > lateAfter:
		return Late
	default:
		return Behind
	}
}

// Standings counts clients by their standing.
type Standings struct {
	Clients int `json:"clients"`
	InSync  int `json:"in_sync"`
	// Behind includes those that are late.
	Behind   int `json:"behind"`
	Late     int `json:"late,omitempty"`
	Refusing int `json:"refusing"`
}

// Text counts them in words.
func (s *Standings) Text() string {
	return fmt.Sprintf("%d in sync, %d behind, %d refusing", s.InSync, s.Behind, s.Refusing)
}

// ofOne counts one client of a standing.
var ofOne = [...]Standings{
	InSync: {Clients: 1, InSync: 1}, Behind: {Clients: 1, Behind: 1}, Late: {Clients: 1, Behind: 1, Late: 1}, Refusing: {Clients: 1, Refusing: 1},
}

func (s *Standings) add(o Standings) {
	s.Clients += o.Clients
	s.InSync += o.InSync
	s.Behind += o.Behind
	s.Late += o.Late
	s.Refusing += o.Refusing
}
