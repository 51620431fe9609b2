package xdsclient

import (
	"slices"
	"sync"
)

// live is the registry of the clients of the process that were made and not
// closed, in the order in which they were made.
var live struct {
	sync.Mutex
	clients []*XDSClient
}

// Clients returns the clients of the process, shared or not, that were made and
// not closed, the oldest first.
func Clients() []*XDSClient {
	live.Lock()
	defer live.Unlock()
	return slices.Clone(live.clients)
}

func addClient(c *XDSClient) {
	live.Lock()
	defer live.Unlock()
	live.clients = append(live.clients, c)
}

// removeClient may be called again.
func removeClient(c *XDSClient) {
	live.Lock()
	defer live.Unlock()
	live.clients = slices.DeleteFunc(live.clients, func(x *XDSClient) bool { return x == c })
}
