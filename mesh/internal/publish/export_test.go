package publish

import "time"

// SetPatience changes how long updates wait for clients.
func (p *Publisher) SetPatience(d time.Duration) { p.patience = d }
