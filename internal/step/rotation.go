package step

import "time"

// credentials gives the envelope that is good now (section 8). URLs, policies and prefixes are always taken from it
// at the moment of use and never kept.
type credentials struct {
	path   string
	now    func() time.Time
	loaded func(*envelope) // called with each envelope read, before anybody uses it
	held   *envelope
}

// current reads the file again when nothing was read yet or the held envelope is about to expire.
func (c *credentials) current() (*envelope, error) {
	if c.held != nil && c.now().Before(c.held.expires.Add(-expiryMargin)) {
		return c.held, nil
	}
	return c.reload()
}

// reload reads the file whatever is held.
func (c *credentials) reload() (*envelope, error) {
	e, err := readEnvelope(c.path)
	if err != nil {
		return nil, err
	}
	c.loaded(e)
	c.held = e
	return e, nil
}

// renewing runs one transfer with the current envelope. If the store refuses the credential and the file holds
// another document by now, the transfer is repeated once, with that. No other failure is repeated.
func (c *credentials) renewing(transfer func(*envelope) error) error {
	e, err := c.current()
	if err != nil {
		return err
	}
	return c.renewingFrom(e, transfer)
}

func (c *credentials) renewingFrom(e *envelope, transfer func(*envelope) error) error {
	err := transfer(e)
	if !isExpired(err) {
		return err
	}
	fresh, reloadErr := c.reload()
	if reloadErr != nil || fresh.raw == e.raw {
		return err
	}
	return transfer(fresh)
}
