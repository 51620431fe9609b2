package site

import (
	"context"
	"log/slog"
	"time"

	"github.com/dynxds/dynxds/mesh/internal/store"
)

// announceAgain is the pause after the store has failed a replica that announces itself.
const announceAgain = 5 * time.Second

// announce keeps a replica in the store's list, for "dynxds clients", until the context ends. It logs the
// first of several failures.
func (s *stored) announce(ctx context.Context, r store.Replica, log *slog.Logger) {
	failed := false
	for {
		began := time.Now()
		err := s.store.Announce(ctx, r)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !failed || time.Since(began) > announceAgain {
			log.Warn("\"dynxds clients --store\" does not find this replica until the store answers", "replica", r.ID, "error", err)
		}
		failed = true
		select {
		case <-ctx.Done():
			return
		case <-time.After(announceAgain):
		}
	}
}
