// Package credential is the secret, the single-use credentials made with it, and the fence that remembers
// which were used.
//
// A credential is one line of JSON, signed with HMAC-SHA256 over five of its members. Gatekeeper.Admit is the only
// way in: it verifies and burns as one step. The Fence makes the burn durable before Admit answers, so that no crash
// lets a credential in twice, and says nothing at all (an error that is ErrFence) where it can't.
package credential
