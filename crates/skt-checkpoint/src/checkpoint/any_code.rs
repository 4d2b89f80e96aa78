//! The protocol's interface to a [`Codec`].

use crate::checkpoint::code::{Code, Rebuild};
use crate::checkpoint::codec::{self, Codec, CodecKind, Coef};

/// An erasure code for the protocol, with one data block and one parity until it is shaped.
#[derive(Debug, Clone)]
pub struct AnyCode(Codec);

impl AnyCode {
    /// The code of kind `kind`.
    pub fn new(kind: CodecKind) -> Self {
        Self(Codec::new(kind, 1, 1).expect("every code has one data block and one parity"))
    }
}

impl Code for AnyCode {
    type Coef = Coef;

    fn name(&self) -> String {
        self.0.kind().to_string()
    }

    fn shaped(&self, data: usize, parities: usize) -> Result<Self, String> {
        Codec::new(self.0.kind(), data, parities).map(Self).map_err(|error| error.to_string())
    }

    fn encode_coef(&self, parity: usize, data: usize) -> Coef {
        self.0.encode_coef(parity, data)
    }

    fn one(&self) -> Coef {
        match self.0.kind() {
            CodecKind::Sum => Coef::Real(1.0),
            CodecKind::Xor | CodecKind::ReedSolomon => Coef::Gf(1),
        }
    }

    fn is_one(&self, coef: Coef) -> bool {
        coef == self.one()
    }

    fn is_zero(&self, coef: Coef) -> bool {
        coef.is_zero()
    }

    fn mul(&self, coef: Coef, src: &[u8], dst: &mut [u8]) {
        codec::mul(coef, src, dst);
    }

    fn fma(&self, coef: Coef, src: &[u8], dst: &mut [u8]) {
        codec::fma(coef, src, dst);
    }

    fn rebuild_plan(&self, lost_data: &[usize], lost_parity: &[usize]) -> Vec<Rebuild<Coef>> {
        let plan = self.0.rebuild_plan(lost_data, lost_parity);
        plan.expect("the protocol has refused what is too much").data
    }
}
