// Package changes remembers the last changes of what the process has from its control planes:
// resources that came, were rejected or went, servers that were lost and restored, and channels
// that changed their mode.
//
// Those who make a change record it; diagnostics read them. The package is for people who look:
// nothing decides by it. It may be used from any goroutine, and calls nothing.
package changes

import (
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
)

// Max is how many changes are remembered.
const Max = 100

// Change is one change. It is immutable, and encodes as JSON.
type Change struct {
	// Number counts the changes of the process from 1.
	Number uint64    `json:"number"`
	Time   time.Time `json:"time"`
	Kind   Kind      `json:"kind"`
	// Type is the short name of a resource's type, such as "Listener", and Name its name. They
	// are empty if the change is of no resource.
	Type string `json:"type,omitempty"`
	Name string `json:"name,omitempty"`
	// From is the version that was in use before, empty if there was none, and To the one in
	// question: the new version, or the one that was rejected.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Server is the URI of the management server.
	Server string `json:"server,omitempty"`
	// Target is that of the channel whose mode changed. From and To are then modes.
	Target string `json:"target,omitempty"`
	// Detail is the error or the reason.
	Detail string `json:"detail,omitempty"`
}

// MaxText bounds each text of a Change, in bytes: most of them come from a server.
const MaxText = 1 << 10

// Kind is what changed.
type Kind string

// The values of Kind.
const (
	// Accepted: a version of a resource came and is in use.
	Accepted Kind = "accepted"
	// Rejected: a version was NACKed. The one before it, if any, stays in use.
	Rejected Kind = "NACKed"
	// Removed: the server deleted the resource, or does not have it.
	Removed Kind = "removed"
	// Failed: the server sent an error in place of the resource, or nothing in time.
	Failed Kind = "error"
	// ServerLost and ServerRestored: a management server is unreachable, or answers again.
	ServerLost     Kind = "server lost"
	ServerRestored Kind = "server restored"
	// ModeChanged: a channel is configured by another source.
	ModeChanged Kind = "mode"
)

var recent struct {
	sync.Mutex
	count uint64
	ring  [Max]Change
}

// Add records a change. It sets the Number and, if it is zero, the Time.
func Add(c Change) {
	if c.Time.IsZero() {
		c.Time = time.Now()
	}
	for _, text := range []*string{&c.Name, &c.From, &c.To, &c.Detail} {
		*text = faults.Shorten(*text, MaxText)
	}
	recent.Lock()
	defer recent.Unlock()
	c.Number = recent.count + 1
	recent.ring[recent.count%Max] = c
	recent.count++
}

// Recent returns the last changes, at most Max, the latest first.
func Recent() []Change {
	recent.Lock()
	defer recent.Unlock()
	n := min(recent.count, Max)
	all := make([]Change, n)
	for i := range all {
		all[i] = recent.ring[(recent.count-1-uint64(i))%Max]
	}
	return all
}
