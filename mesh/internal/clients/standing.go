package clients

import (
	"fmt"
	"time"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

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
	case now.Sub(t.SentAt) > lateAfter:
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
