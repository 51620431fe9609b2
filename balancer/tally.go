package balancer

import "google.golang.org/grpc/connectivity"

// tally counts the clusters in each state of connectivity, so that one that
// changes does not cost a look at all the others.
type tally [connectivity.Shutdown + 1]int

func (t *tally) add(s connectivity.State)    { t[s]++ }
func (t *tally) remove(s connectivity.State) { t[s]-- }

// aggregate is the channel's connectivity: READY if any cluster is, else
// CONNECTING if any is, else IDLE if any is, else TRANSIENT_FAILURE. Without
// any cluster it is IDLE: nothing has failed, but there is nothing to connect
// to either.
func (t *tally) aggregate() connectivity.State {
	for _, s := range [...]connectivity.State{
		connectivity.Ready, connectivity.Connecting, connectivity.Idle, connectivity.TransientFailure,
	} {
		if t[s] > 0 {
			return s
		}
	}
	return connectivity.Idle
}
