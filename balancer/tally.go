package balancer

import (
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// tally counts the clusters in each connectivity state, so that a change of one costs nothing
// for the others.
type tally [connectivity.Shutdown + 1]int

func (t *tally) add(s connectivity.State)    { t[s]++ }
func (t *tally) remove(s connectivity.State) { t[s]-- }

// aggregate returns the channel's state: that of the clusters that is first in tree.Order. Without clusters it is IDLE: nothing has failed.
func (t *tally) aggregate() connectivity.State {
	for _, s := range tree.Order {
		if t[s] > 0 {
			return s
		}
	}
	return connectivity.Idle
}
