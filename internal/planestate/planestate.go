// Package planestate is what a control plane says about its own configuration: whether the newest documents are valid,
// since when they are not and why, and what it published last. "dynxds serve" keeps a State up to date; its status page,
// health, metrics and "dynxds clients" show it.
//
// A State describes documents, not clients: what clients have accepted is in controlplane.ClientStatus.
package planestate

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/faults"
)

// State is the state of a control plane's configuration at one time. It is not changed once it is kept.
type State struct {
	// Place is where the documents are: "folder" or "store". Name is the folder's path or the store's address.
	Place string `json:"place"`
	Name  string `json:"name"`
	// FaultySince is when the newest documents became faulty; nil if they are valid. Faults is the number of their faults,
	// and First the first one, "file:line: what is wrong; what to do".
	FaultySince *time.Time `json:"faulty_since,omitempty"`
	Faults      int        `json:"faults,omitempty"`
	First       string     `json:"first_fault,omitempty"`
	// Permissive says that the documents are served though clients reject parts of them ("dynxds serve --permissive").
	// Otherwise clients keep what was published last while the documents are faulty.
	Permissive bool `json:"permissive,omitempty"`
	// Waiting says why valid documents are not published yet, such as "the change withdraws 2 of 3 services (a, b)"; they
	// are at WaitingUntil.
	Waiting      string     `json:"waiting,omitempty"`
	WaitingUntil *time.Time `json:"waiting_until,omitempty"`
	// GoneSince is when the store ceased to answer, nil if it answers.
	GoneSince *time.Time `json:"gone_since,omitempty"`
	// Published is the last update, nil before the first one.
	Published *Published `json:"published,omitempty"`
}

// Published is an update of what clients are served.
type Published struct {
	At time.Time `json:"at"`
	// Version is the store's (controlplane.Store.Version).
	Version uint64 `json:"version"`
	// Changed and Removed count variants of resources.
	Changed int `json:"changed"`
	Removed int `json:"removed"`
	// What are the services that resources changed of, and resources that belong to no service, such as "Cluster a", in
	// order: at most MaxWhat of them. More counts the others.
	What []string `json:"what,omitempty"`
	More int      `json:"more,omitempty"`
	// Documents, Services and Policies are what is served.
	Documents int `json:"documents"`
	Services  int `json:"services"`
	Policies  int `json:"policies"`
	// Errors counts faults for which some clients get errors in place of resources, or routes whose RPCs fail, such as
	// references to services that do not exist (yet). FirstError is the first one.
	Errors     int    `json:"errors,omitempty"`
	FirstError string `json:"first_error,omitempty"`
}

// MaxWhat bounds Published.What.
const MaxWhat = 20

// Valid reports whether the newest documents have no fault.
func (s *State) Valid() bool { return s.FaultySince == nil }

// Text says in lines what is wrong; it is empty if nothing is. Without details, names of files and services are left out.
func (s *State) Text(details bool) (lines []string) {
	add := func(detail, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if details && detail != "" {
			text += ": " + detail
		}
		lines = append(lines, text)
	}
	if s.FaultySince != nil {
		effect := "clients keep what was published last"
		if s.Permissive {
			effect = "published nevertheless (--permissive)"
		}
		add(s.First, "the %s has %s since %s; %s", s.Place, faults.Count(s.Faults, "fault"), stamp(*s.FaultySince), effect)
	}
	if s.Waiting != "" {
		add(s.Waiting, "a large withdrawal of services waits until %s", stamp(*s.WaitingUntil))
	}
	if s.GoneSince != nil {
		add("", "the %s has not answered since %s; clients keep what was published last", s.Place, stamp(*s.GoneSince))
	}
	if p := s.Published; p != nil && p.Errors > 0 {
		add(p.FirstError, "%s in what is published: some clients get errors in place of resources, or their RPCs fail", faults.Count(p.Errors, "fault"))
	}
	return lines
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Keeper keeps the present State. It is safe for concurrent use; one goroutine at a time may call Set.
type Keeper struct {
	state atomic.Pointer[State]
	// gone is when the store ceased to answer, zero if it answers; it may be nil.
	gone func() time.Time
}

// NewKeeper returns a Keeper of a State in which nothing was published. gone returns when the store ceased to answer, the
// zero time if it answers; it is called at any time.
func NewKeeper(place, name string, gone func() time.Time) *Keeper {
	k := &Keeper{gone: gone}
	k.state.Store(&State{Place: place, Name: name})
	return k
}

// Set changes the State, and wakes those who watch (package changes).
func (k *Keeper) Set(change func(*State)) {
	next := *k.state.Load()
	change(&next)
	k.state.Store(&next)
	changes.Touch()
}

// State returns the present State.
func (k *Keeper) State() State {
	s := *k.state.Load()
	if since := k.gone(); !since.IsZero() {
		s.GoneSince = &since
	}
	return s
}
