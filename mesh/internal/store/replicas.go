package store

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynxds/dynxds/internal/retries"
)

// Replica is what a replica of "dynxds serve" says of itself.
type Replica struct {
	// ID is unique among those that run.
	ID string `json:"id"`
	// Admin is the address of its admin endpoint, host:port; empty if it has none that others reach.
	Admin string `json:"admin,omitempty"`
	// Address is that of its xDS server.
	Address string    `json:"address,omitempty"`
	Started time.Time `json:"started"`
	// Fault says why an entry of the list is none; then only ID is set. It is not written.
	Fault error `json:"-"`
}

const (
	replicas = "/replicas/"
	// leaseTTL is how long a replica that crashed stays in the list.
	leaseTTL = 15 * time.Second
)

// Announce keeps a replica in the list until the context ends, and then takes it out. It returns the
// reason whenever etcd fails it, or loses the lease: the caller waits, and calls it again.
func (s *Store) Announce(ctx context.Context, r Replica) error {
	value, _ := json.Marshal(r) // it has texts, and a time of this century
	client, err := s.connect()
	if err != nil {
		return s.fault("connect to", err)
	}
	asking, cancel := s.timeout(ctx) // for both requests
	defer cancel()
	lease, err := client.Grant(asking, int64(leaseTTL/time.Second))
	if err != nil {
		return s.fault("get a lease of", err)
	}
	// This deletes the key too. If it fails, the lease expires.
	defer func() {
		ctx, cancel := s.timeout(context.WithoutCancel(ctx))
		defer cancel()
		_, _ = client.Revoke(ctx, lease.ID)
	}()
	if _, err := client.Put(asking, s.prefix+replicas+r.ID, string(value), clientv3.WithLease(lease.ID)); err != nil {
		return s.fault("announce replica "+r.ID+" in", err)
	}
	alive, err := client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return s.fault("keep the lease of replica "+r.ID+" in", err)
	}
	for range alive {
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the lease of replica %s has ended: etcd was not reached for %s, or the password has changed", r.ID, leaseTTL)
}

// announceAgain is the pause after the store has failed a replica that announces itself.
const announceAgain = 5 * time.Second

// Announce keeps a replica in the store's list, for "dynxds clients", until the context ends. It logs the
// first of several failures.
func (f *Source) Announce(ctx context.Context, r Replica) {
	for failed := false; ; failed = true {
		began := time.Now()
		err := f.store.Announce(ctx, r)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !failed || time.Since(began) > announceAgain {
			f.log.Warn("\"dynxds clients --store\" does not find this replica until the store answers", "replica", r.ID, "error", err)
		}
		if retries.Wait(ctx, announceAgain) != nil {
			return
		}
	}
}

// Replicas returns those that run, and those that crashed a moment ago, ordered by ID.
func (s *Store) Replicas(ctx context.Context) ([]Replica, error) {
	response, err := s.get(ctx, s.prefix+replicas, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	list := make([]Replica, 0, len(response.Kvs))
	for _, kv := range response.Kvs {
		var r Replica
		if err := json.Unmarshal(kv.Value, &r); err != nil {
			id := path.Base(string(kv.Key))
			r = Replica{ID: id, Fault: fmt.Errorf("its entry %q is not one of a replica: %w", kv.Key, err)}
		}
		list = append(list, r)
	}
	return list, nil
}
